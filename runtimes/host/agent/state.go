package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/runtimes"
	"berth/runtimes/checksum"
)

// stateDir is the directory of the agent's own files.
type stateDir string

// path returns the path of a file.
func (d stateDir) path(file string) string { return filepath.Join(string(d), file) }

// lock locks one byte of the lock file and waits for it until ctx ends. Closing the
// file unlocks it.
func (d stateDir) lock(ctx context.Context, at int64, shared bool) (*os.File, error) {
	if err := d.ensure(); err != nil {
		return nil, err
	}
	name := d.path("lock")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, ioFault(name, err)
	}
	return waitLock(ctx, f, at, shared, "another operation on this host has not ended; Berth tries again")
}

// ensure makes the directory, for root only.
func (d stateDir) ensure() error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return ioFault(string(d), err)
	}
	return nil
}

// write replaces a file and syncs it.
func (d stateDir) write(file, text string) error {
	p, err := d.open(file)
	if err != nil {
		return err
	}
	defer p.close()
	return p.replace([]byte(text), 0o600, os.Geteuid(), os.Getegid())
}

// remove removes a file, which may be missing.
func (d stateDir) remove(file string) error {
	p, err := d.open(file)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.remove(false); err != nil && !isNotFound(err) {
		return err
	}
	return p.sync()
}

// open opens the place of a file and removes what a crash left beside it.
func (d stateDir) open(file string) (place, error) {
	p, err := open(d.path(file))
	if err != nil {
		return p, err
	}
	if err := p.sweep(); err != nil {
		p.close()
		return p, err
	}
	return p, nil
}

// damaged is the suffix of a damaged file that was renamed.
const damaged = ".damaged"

// madeFile is the content of a file of the agent. The list of made paths has a field of its own, because the checksum is a field beside it.
type madeFile struct {
	Made any `json:"made"`
}

// readJSON reads a file that writeJSON wrote, if it exists. It renames a file that was cut off or edited, which counts as
// missing: the agent can rebuild its content from the rest of the host.
func (d stateDir) readJSON(file string, v any) (found bool, err error) {
	b, err := os.ReadFile(d.path(file))
	if os.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, ioFault(d.path(file), err)
	}
	if checksum.Decode(b, &madeFile{v}) == nil {
		return true, nil
	}
	if err := os.Rename(d.path(file), d.path(file+damaged)); err != nil && !os.IsNotExist(err) {
		return false, ioFault(d.path(file), err)
	}
	return false, nil
}

func (d stateDir) writeJSON(file string, v any) error {
	b, err := checksum.Encode(madeFile{v})
	if err != nil {
		return ioFault(file, err)
	}
	return d.write(file, string(b))
}

// words reads the words of a file that ends with a newline, as one that was cut off does not. It returns nil if the file
// does not exist.
func (d stateDir) words(file string) ([]string, error) {
	name := d.path(file)
	b, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, ioFault(name, err)
	}
	words := strings.Fields(string(b))
	if len(words) == 0 || !strings.HasSuffix(string(b), "\n") {
		return nil, unreadableState(name)
	}
	return words, nil
}

func unreadableState(name string) error {
	return &Fault{Code: runtimes.CodeIO,
		Message: name + " is cut off or damaged: stop each daemon of Berth except one, then remove the file"}
}
