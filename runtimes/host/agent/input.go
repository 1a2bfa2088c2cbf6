package agent

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

// giveInput gives a program its input, its script as the last argument, and the variables to export. end removes the script.
func giveInput(cmd *exec.Cmd, prog runtimes.Program, op *runtimes.Run, as *syscall.Credential) (end func(), err error) {
	var ends []func()
	all := func() {
		for _, end := range ends {
			end()
		}
	}
	defer func() {
		if err != nil {
			all()
		}
	}()
	switch {
	case op.StdinFile != "":
		input, err := openPlain(op.StdinFile)
		if err != nil {
			return nil, err
		}
		ends = append(ends, func() { _ = input.Close() })
		cmd.Stdin = input
	case op.Script != "":
		remove, err := makeScript(op.Script, op.Stdin, as)
		if err != nil {
			return nil, err
		}
		ends = append(ends, remove)
		cmd.Args = append(cmd.Args, op.Script)
	default:
		cmd.Stdin = bytes.NewReader(op.Stdin)
	}
	if prog.Export != nil {
		variables, err := variables(op.Program, op.Export, prog.Export)
		if err != nil {
			return nil, err
		}
		text := ""
		for _, v := range variables {
			text += v + "\x00"
		}
		file, err := inMemory(text)
		if err != nil {
			return nil, err
		}
		ends = append(ends, func() { _ = file.Close() })
		cmd.ExtraFiles = []*os.File{file}
	} else if len(op.Export) > 0 {
		return nil, refuse("%s: variables to export not allowed", plain(op.Program))
	}
	return all, nil
}

// makeScript makes the file of a script, DIR/NAME/FILE, for an account. It first removes what killed processes left in DIR.
func makeScript(path string, text []byte, as *syscall.Credential) (remove func(), err error) {
	dir := filepath.Dir(path)
	remove = func() { _ = os.RemoveAll(dir) }
	remove()
	removeEarlier(filepath.Dir(dir), time.Now().Add(-maxRunTimeout))
	err = errors.Join(makeOpen(filepath.Dir(dir)), makeOpen(dir))
	if err == nil {
		err = os.WriteFile(path, text, 0o400)
	}
	if err == nil && as != nil {
		err = os.Chown(path, int(as.Uid), int(as.Gid))
	}
	if err != nil {
		remove()
		return nil, &Fault{Code: runtimes.CodeIO, Message: err.Error()}
	}
	return remove, nil
}

// removeEarlier removes the entries of a directory that are older than a time.
func removeEarlier(dir string, before time.Time) {
	entries, _ := os.ReadDir(dir) // it may not be there
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.ModTime().Before(before) {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// makeOpen makes a directory in which others find a file by its name only, unless it is there.
func makeOpen(dir string) error {
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(dir, 0o711) // independent of the umask
}

// inMemory returns a file with a text, which is nowhere on a disk. A program can open it again as /proc/self/fd/N.
func inMemory(text string) (*os.File, error) {
	fd, err := unix.MemfdCreate("export", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, &Fault{Code: runtimes.CodeIO, Message: "memfd_create: " + err.Error()}
	}
	file := os.NewFile(uintptr(fd), "export")
	_, err = file.WriteAt([]byte(text), 0) // leaves its offset at 0
	if err != nil {
		_ = file.Close()
		return nil, &Fault{Code: runtimes.CodeIO, Message: err.Error()}
	}
	return file, nil
}
