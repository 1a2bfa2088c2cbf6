package statusbranch

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler/plan"
	"berth/schema/parallel"
)

// minCopied is the number of changed files from which the copy is written. To read fewer costs less than a copy.
const minCopied = 256

// maxCopied bounds one line of the copy in bytes. A review of maxReview bytes of YAML fits, as JSON.
const maxCopied = 4 * maxReview

// indexCopy is a copy of the index on disk, from which a restart begins. It is derived: without it, all files of the
// branch are read.
//
// The file has a line with copyHead, a line with a copiedFile for each file, and the SHA-256 of all lines before.
type indexCopy struct {
	path string
	log  *slog.Logger

	writers sync.WaitGroup
	turn    sync.Mutex // held while the file is written
}

// copyHead identifies the build and the tree of a copy.
type copyHead struct {
	Build string        `json:"build"` // of the program that wrote it; another one may read the same files differently
	Root  plumbing.Hash `json:"root"`  // tree of berth/status
	Files int           `json:"files"`
}

// copiedFile is a file of the branch. One of Unit, Thing, Review and Warning is set.
type copiedFile struct {
	Unit    *plan.Status      `json:"unit,omitempty"`
	Thing   *plan.ThingStatus `json:"thing,omitempty"`
	Review  *plan.Review      `json:"review,omitempty"`
	Path    string            `json:"path,omitempty"` // of a file that was skipped
	Warning string            `json:"warning,omitempty"`
}

func (f copiedFile) file() statusFile {
	out := statusFile{path: f.Path, Status: f.Unit, Thing: f.Thing, review: f.Review, Warning: f.Warning}
	switch {
	case f.Unit != nil:
		out.Key = f.Unit.Key
	case f.Thing != nil:
		out.Key = f.Thing.Key
	case f.Review != nil:
		out.pull = f.Review.Pull
	}
	return out
}

// isDue reports whether to write the copy: a quarter of the files, and at least minCopied, changed since the last one. So its
// cost follows the changes, and a restart reads at most that part.
func (x *statusIndex) isDue() bool {
	return x.changed >= max(minCopied, (x.units.Len()+len(x.things)+len(x.reviews))/4)
}

// save writes the copy in the background if that is due, one at a time. The caller holds the lock of x.
func (c *indexCopy) save(x *statusIndex) {
	if c == nil || !x.isDue() || !c.turn.TryLock() {
		return
	}
	x.changed = 0
	frozen := &statusIndex{root: x.root, units: x.units, things: maps.Clone(x.things), reviews: maps.Clone(x.reviews),
		warnings: maps.Clone(x.warnings)}
	c.writers.Go(func() {
		defer c.turn.Unlock()
		if err := c.replace(frozen); err != nil {
			c.log.Warn("copy of berth/status not written; the next start reads more statuses", "error", err.Error())
		}
	})
}

// replace writes the copy of x. A reader finds the one before or the new one.
func (c *indexCopy) replace(x *statusIndex) error {
	build, err := programBuild()
	if err != nil {
		return err
	}
	file, err := os.OpenFile(c.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(writeCopy(file, build, x), file.Close()); err == nil {
		err = os.Rename(file.Name(), c.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name())) // it may fill the disk
	}
	return nil
}

func writeCopy(w io.Writer, build string, x *statusIndex) error {
	buffered, sum := bufio.NewWriterSize(w, 1<<16), sha256.New()
	lines := json.NewEncoder(io.MultiWriter(buffered, sum))
	var files []copiedFile
	for _, s := range x.units.All() {
		files = append(files, copiedFile{Unit: s})
	}
	for _, s := range x.things {
		files = append(files, copiedFile{Thing: s})
	}
	for _, v := range x.reviews {
		files = append(files, copiedFile{Review: v})
	}
	for path, warning := range x.warnings {
		if path != revisionFile { // read at each start
			files = append(files, copiedFile{Path: path, Warning: warning})
		}
	}
	if err := lines.Encode(copyHead{build, x.root, len(files)}); err != nil {
		return err
	}
	for _, f := range files {
		if err := lines.Encode(f); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(buffered, "%x\n", sum.Sum(nil)); err != nil {
		return err
	}
	return buffered.Flush()
}

// restore returns the index at the tree of the copy; nil if this program cannot use the copy, or there is none.
func (r *View) restore(c *indexCopy) *statusIndex {
	x, err := r.readCopy(c)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		c.log.Info("copy of berth/status ignored; all statuses are read", "reason", err.Error())
	}
	return x
}

func (r *View) readCopy(c *indexCopy) (*statusIndex, error) {
	file, err := os.Open(c.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	build, err := programBuild()
	if err != nil {
		return nil, err
	}
	in := copyReader{lines: bufio.NewReaderSize(file, 1<<16), sum: sha256.New()}
	head, err := in.head()
	switch {
	case err != nil:
		return nil, err
	case head.Build != build:
		return nil, errors.New("another build of Berth wrote it")
	case !r.objects.HasTree(head.Root.String()):
		return nil, fmt.Errorf("the mirror does not have its tree %s", head.Root)
	}
	files, err := in.files(head.Files)
	if err != nil {
		return nil, err
	}
	revision, warning, err := r.readRevision(head.Root)
	if err != nil {
		return nil, err
	}
	x := newIndex()
	x.move(head.Root, revision, warning)
	x.set(files)
	x.changed = 0
	return x, nil
}

// copyReader reads the lines of a copy.
type copyReader struct {
	lines *bufio.Reader
	sum   hash.Hash // of the lines before
}

// line returns the next line. The caller may keep the bytes.
func (r *copyReader) line() ([]byte, error) {
	var line []byte
	for {
		part, err := r.lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("the file is cut: %w", err)
		case len(line) > maxCopied:
			return nil, errors.New("a line is too long")
		}
	}
}

func (r *copyReader) head() (head copyHead, err error) {
	line, err := r.line()
	if err != nil {
		return head, err
	}
	r.sum.Write(line)
	err = json.Unmarshal(line, &head)
	return head, err
}

// files returns the n files that follow, and compares the checksum.
func (r *copyReader) files(n int) ([]statusFile, error) {
	const batch = 256 // lines in memory
	var out []statusFile
	for len(out) < n {
		lines := make([][]byte, min(batch, n-len(out)))
		for i := range lines {
			line, err := r.line()
			if err != nil {
				return nil, err
			}
			r.sum.Write(line)
			lines[i] = line
		}
		files := make([]statusFile, len(lines))
		if err := parallel.Each(len(lines), func(i int) error {
			var f copiedFile
			err := json.Unmarshal(lines[i], &f)
			files[i] = f.file()
			return err
		}); err != nil {
			return nil, err
		}
		out = append(out, files...)
	}
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	if want, err := hex.DecodeString(string(bytes.TrimSpace(line))); err != nil || !bytes.Equal(want, r.sum.Sum(nil)) {
		return nil, errors.New("its checksum is wrong")
	}
	return out, nil
}

// programBuild returns the id that the Go linker gave to this program. It changes with the sources. The file is that of the
// running program: an upgrade may have put another one at its path.
func programBuild() (string, error) {
	file, err := elf.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer file.Close()
	note := file.Section(".note.go.buildid")
	if note == nil {
		return "", errors.New("the program has no build id")
	}
	data, err := note.Data()
	return hex.EncodeToString(data), err
}

// Close waits until the copy of the index is written.
func (r *Branch) Close() {
	if r.copy != nil {
		r.copy.writers.Wait()
	}
}
