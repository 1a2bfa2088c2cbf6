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

	"berth/runtimes"
	"berth/schema"
)

// file reads a file in an allowed directory of this host. It follows no link out of it.
func (l *Looker) file(ctx context.Context, source *schema.ArtifactSource, reference string) (bytesFound, error) {
	dir := source.Spec.Directory
	if !slices.ContainsFunc(l.o.Directories, func(d string) bool { return dir == d || strings.HasPrefix(dir, d+"/") }) {
		return bytesFound{}, unknown(runtimes.ReasonDirectoryRefused,
			"the directory of the source %s is not allowed: add it in berth.yaml, in artifacts.directories", source.Key.Name)
	}
	all, err := os.OpenRoot(dir)
	if err != nil {
		return bytesFound{}, unknown(runtimes.ReasonUnreachable, "the directory of the source %s cannot be opened", source.Key.Name)
	}
	defer func() { _ = all.Close() }()
	root, reference, err := within(all, source, reference)
	if err != nil {
		return bytesFound{}, err
	}
	defer func() { _ = root.Close() }()
	// O_NONBLOCK, as opening a pipe would block.
	f, err := root.OpenFile(reference, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return bytesFound{}, missing(all, source)
	}
	if err != nil {
		return bytesFound{}, unknown(runtimes.ReasonUnreadable, "the file is unreadable, or a link out of the source's directory")
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return bytesFound{}, unknown(runtimes.ReasonNoFile, "not a plain file")
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
		return bytesFound{}, unknown(runtimes.ReasonTimeout, "reading the file timed out")
	case err != nil:
		return bytesFound{}, unknown(runtimes.ReasonUnreadable, "reading the file failed")
	}
	return bytesFound{digest: digest, size: size}, nil
}

// within opens the repository of source that contains reference, or the directory of a
// source without repositories. A link may not lead out of the returned root. No part
// of the repository's path may be a link.
func within(root *os.Root, source *schema.ArtifactSource, reference string) (*os.Root, string, error) {
	in := "."
	for _, r := range source.Spec.Repositories {
		if rest, ok := strings.CutPrefix(reference, r+"/"); ok {
			in, reference = r, rest
			break
		}
	}
	if in == "." && len(source.Spec.Repositories) > 0 {
		return nil, "", unknown(runtimes.ReasonOutside, "the reference is in no repository of the source %s", source.Key.Name)
	}
	at, err := root.OpenRoot(".")
	for _, name := range strings.Split(in, "/") {
		if err != nil {
			break
		}
		above := at
		at, err = enter(above, name)
		_ = above.Close()
	}
	var lack *lackError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", missing(root, source)
	case errors.As(err, &lack):
		return nil, "", lack
	case err != nil:
		return nil, "", unknown(runtimes.ReasonUnreadable, "the directory of the repository %s cannot be opened", in)
	}
	return at, reference, nil
}

// enter opens a directory that is not a link.
func enter(above *os.Root, name string) (*os.Root, error) {
	named, err := above.Lstat(name)
	if err != nil {
		return nil, err
	}
	if named.Mode().Type()&fs.ModeSymlink == 0 && !named.IsDir() { // opening a pipe would block
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	at, err := above.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	opened, err := at.Stat(".")
	if err != nil || !os.SameFile(named, opened) {
		_ = at.Close()
		return nil, unknown(runtimes.ReasonLinked,
			"the path of the repository contains a link, which could lead to files that are not shared")
	}
	return at, nil
}

// missing returns the error for a missing file. If the whole directory is empty, its
// disk may not be mounted, so the state is unknown.
func missing(root *os.Root, source *schema.ArtifactSource) error {
	d, err := root.Open(".")
	if err == nil {
		defer func() { _ = d.Close() }()
		_, err = d.ReadDir(1)
	}
	switch {
	case errors.Is(err, io.EOF):
		return unknown(runtimes.ReasonEmpty, "the directory of the source %s is empty: is it mounted?", source.Key.Name)
	case err != nil:
		return unknown(runtimes.ReasonUnreadable, "the directory of the source %s cannot be read", source.Key.Name)
	}
	return absent("not found in the source %s: add the file, or correct the reference", source.Key.Name)
}
