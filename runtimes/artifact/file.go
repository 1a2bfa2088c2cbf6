package artifact

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"berth/schema"
)

// file looks at a file of this host, in a directory that the operator named. No
// link leads out of it.
func (l *Looker) file(ctx context.Context, source *schema.ArtifactSource, reference string) (bytesFound, error) {
	dir := source.Spec.Directory
	if !slices.ContainsFunc(l.o.Directories, func(d string) bool { return dir == d || strings.HasPrefix(dir, d+"/") }) {
		return bytesFound{}, unknown("DirectoryRefused", "the directory of the source %s is none that may be looked into: name it in berth.yaml, in artifacts.directories", source.Key.Name)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return bytesFound{}, unknown("Unreachable", "the directory of the source %s cannot be opened", source.Key.Name)
	}
	defer func() { _ = root.Close() }()
	// A pipe would wait for its other end; O_NONBLOCK makes it show itself.
	f, err := root.OpenFile(reference, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return bytesFound{}, missing(root, source)
	}
	if err != nil {
		return bytesFound{}, unknown("Unreadable", "it cannot be opened, or leads out of the source's directory")
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return bytesFound{}, unknown("NoFile", "there is something else than a file")
	}
	if info.Size() > l.o.MaxBytes {
		return bytesFound{}, tooLarge(l.o.MaxBytes)
	}
	digest, size, err := sum(ctx, f, l.o.MaxBytes)
	var lack *lackError
	switch {
	case errors.As(err, &lack):
		return bytesFound{}, lack
	case ctx.Err() != nil:
		return bytesFound{}, unknown("Timeout", "reading it takes too long")
	case err != nil:
		return bytesFound{}, unknown("Unreadable", "reading it breaks off")
	}
	return bytesFound{digest: digest, size: size}, nil
}

// missing says what it means that a file is not there: nothing, where the whole
// directory is empty, as one is whose disk is not mounted.
func missing(root *os.Root, source *schema.ArtifactSource) error {
	d, err := root.Open(".")
	if err == nil {
		defer func() { _ = d.Close() }()
		_, err = d.ReadDir(1)
	}
	switch {
	case errors.Is(err, io.EOF):
		return unknown("Empty", "the directory of the source %s is empty: is it mounted?", source.Key.Name)
	case err != nil:
		return unknown("Unreadable", "the directory of the source %s cannot be read", source.Key.Name)
	}
	return absent("the source %s has nothing there: put it there, or mend the reference", source.Key.Name)
}
