package agent

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

const (
	maxHashed = 16 << 20 // bytes of a file that Stat hashes: the configuration of some 100,000 nodes
	lowSpace  = 16 << 20 // bytes; with less, Stat calls a file system full
	maxNames  = 10000    // names of a directory that List returns
)

// hostFiles does the operations on files and directories. The caller has checked with
// the profiles what it makes.
type hostFiles struct {
	allow    *allowList
	accounts accountFiles
	paths    madePaths
}

func fileMode(mode, allowed uint32) error {
	if mode == 0 || mode&^allowed != 0 {
		return invalid("mode %04o is not allowed", mode)
	}
	return nil
}

func (h hostFiles) write(op *runtimes.WriteFile) (runtimes.Result, error) {
	var res runtimes.Result
	if err := fileMode(op.Mode, 0o666); err != nil { // no written file is executable
		return res, err
	}
	uid, gid, err := h.accounts.owner(op.Owner, op.Group)
	if err != nil {
		return res, err
	}
	p, err := open(op.Path)
	if err != nil {
		return res, err
	}
	defer p.close()
	same, err := p.same(op.Data, op.Mode, uid, gid)
	if err != nil || same {
		return res, err
	}
	res.Changed = true
	return res, p.replace(op.Data, op.Mode, uid, gid)
}

func (h hostFiles) read(op *runtimes.ReadFile) (runtimes.Result, error) {
	var res runtimes.Result
	if err := h.allow.check(op.Path); err != nil {
		return res, err
	}
	most := op.Max
	if most == 0 {
		most = 1 << 20
	}
	if most < 0 || most > maxOutput {
		return res, invalid("max is 1 to %d bytes", maxOutput)
	}
	f, err := openPlain(op.Path)
	if isNotFound(err) {
		return runtimes.Result{Missing: true}, nil
	}
	if err != nil {
		return res, err
	}
	defer f.Close()
	if made, err := h.paths.made(op.Path); err != nil {
		return res, err
	} else if !made { // such as the munge key of a cluster that another person runs here
		return res, refuse("%s was not made by Berth, which reads only its own files", plain(op.Path))
	}
	if res.Data, err = io.ReadAll(io.LimitReader(f, int64(most))); err != nil {
		return res, ioFault(op.Path, err)
	}
	return res, nil
}

func (h hostFiles) remove(op *runtimes.Remove) (runtimes.Result, error) {
	var res runtimes.Result
	if err := h.allow.check(op.Path); err != nil {
		return res, err
	}
	p, err := open(op.Path)
	if isNotFound(err) {
		return res, nil
	}
	if err != nil {
		return res, err
	}
	defer p.close()
	if op.IfEmpty {
		return h.removeEmpty(p)
	}
	err = p.remove(op.Tree)
	if err != nil && !isNotFound(err) {
		return res, err
	}
	res.Changed = err == nil
	if err := p.sweep(); err != nil {
		return res, err
	}
	if !res.Changed {
		return res, nil
	}
	return res, p.sync()
}

// removeEmpty removes a directory that Berth made, if it is empty.
func (h hostFiles) removeEmpty(p place) (runtimes.Result, error) {
	var res runtimes.Result
	if made, err := h.paths.made(p.path); err != nil || !made {
		return res, err
	}
	if h.allow.userDirs(p.path) {
		if err := h.removeEmptyIn(p.path); err != nil {
			return res, err
		}
	}
	var err error
	if res.Changed, err = p.removeDir(); err != nil || !res.Changed {
		return res, err
	}
	return res, p.sync()
}

// removeEmptyIn removes the empty directories in a directory.
func (h hostFiles) removeEmptyIn(dir string) error {
	in, err := h.list(&runtimes.List{Path: dir})
	if err != nil {
		return err
	}
	for _, name := range in.Names {
		p, err := open(path.Join(dir, name))
		if err != nil {
			return err
		}
		_ = unix.Unlinkat(p.dir, p.name, unix.AT_REMOVEDIR) // another one stays
		p.close()
	}
	return nil
}

// makeDir makes a directory, or corrects mode and owner of one that Berth made.
func (h hostFiles) makeDir(op *runtimes.MakeDir) (runtimes.Result, error) {
	var res runtimes.Result
	if err := fileMode(op.Mode, 0o1777); err != nil {
		return res, err
	}
	uid, gid, err := h.accounts.owner(op.Owner, op.Group)
	if err != nil {
		return res, err
	}
	p, err := open(op.Path)
	if err != nil {
		return res, err
	}
	defer p.close()
	made := true
	switch err := unix.Mkdirat(p.dir, p.name, 0o700); err {
	case nil:
		afterStep()
		res.Changed = true
	case unix.EEXIST:
		if made, err = h.paths.made(op.Path); err != nil {
			return res, err
		}
	default:
		return res, ioFault(p.path, err)
	}
	fd, err := p.openDirectory()
	if err != nil {
		return res, err
	}
	defer unix.Close(fd)
	if !made {
		return res, nil // not changed
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return res, ioFault(p.path, err)
	}
	if int(st.Uid) != uid || int(st.Gid) != gid {
		if err := unix.Fchown(fd, uid, gid); err != nil {
			return res, ioFault(p.path, err)
		}
		res.Changed = true
	}
	if st.Mode&0o7777 != op.Mode {
		if err := unix.Fchmod(fd, op.Mode); err != nil {
			return res, ioFault(p.path, err)
		}
		res.Changed = true
	}
	if !res.Changed {
		return res, nil
	}
	if err := unix.Fsync(fd); err != nil {
		return res, ioFault(p.path, err)
	}
	return res, p.sync()
}

func (h hostFiles) makeLink(op *runtimes.MakeLink) (runtimes.Result, error) {
	to := op.Target
	if !path.IsAbs(to) {
		to = path.Join(path.Dir(op.Path), to)
	}
	if err := h.allow.check(to); err != nil {
		return runtimes.Result{}, err
	}
	return link(op)
}

func (h hostFiles) stat(op *runtimes.Stat) (runtimes.Result, error) {
	var res runtimes.Result
	rec, err := h.paths.read()
	if err != nil {
		return res, err
	}
	for _, name := range op.Paths {
		st, err := h.statOne(rec, name)
		if err != nil {
			return res, err
		}
		res.Stats = append(res.Stats, st)
	}
	return res, nil
}

func (h hostFiles) statOne(rec pathRecord, name string) (runtimes.FileStat, error) {
	out := runtimes.FileStat{Path: name}
	hashed, err := h.allow.checkLook(name)
	if err != nil {
		return out, err
	}
	p, err := open(name)
	if isNotFound(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	defer p.close()
	st, there, err := p.lstat()
	if err != nil || !there {
		return out, err
	}
	out.Exists, out.Type, out.Mode, out.UID, out.Size = true, typeOf(st.Mode), st.Mode&0o7777, st.Uid, st.Size
	out.Made = rec.has(name)
	if out.Type == "dir" {
		out.Full, out.ReadOnly, err = p.room()
		return out, err
	}
	if out.Type != "file" || out.Size > maxHashed || !hashed {
		return out, nil
	}
	f, _, err := p.openFile()
	if isNotFound(err) {
		return runtimes.FileStat{Path: name}, nil
	}
	if err != nil {
		return out, err
	}
	defer f.Close()
	sum := sha256.New()
	if out.Size, err = io.Copy(sum, io.LimitReader(f, maxHashed)); err != nil {
		return out, ioFault(name, err)
	}
	out.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return out, nil
}

func (h hostFiles) list(op *runtimes.List) (runtimes.Result, error) {
	var res runtimes.Result
	if err := h.allow.check(op.Path); err != nil {
		return res, err
	}
	fd, err := openDir(op.Path)
	if isNotFound(err) {
		return res, nil
	}
	if err != nil {
		return res, err
	}
	d := os.NewFile(uintptr(fd), op.Path)
	defer d.Close()
	names, err := d.Readdirnames(maxNames + 1)
	if err != nil && err != io.EOF {
		return res, ioFault(op.Path, err)
	}
	if len(names) > maxNames {
		return res, refuse("%s has more than %d names", plain(op.Path), maxNames)
	}
	// Names that are not UTF-8, and temporary files, are left out.
	names = slices.DeleteFunc(names, func(n string) bool {
		return strings.ToValidUTF8(n, "") != n || isTemporary(n)
	})
	slices.Sort(names)
	res.Names = names
	return res, nil
}

func (h hostFiles) makeSecret(op *runtimes.MakeSecret) (runtimes.Result, error) {
	var res runtimes.Result
	if err := fileMode(op.Mode, 0o660); err != nil {
		return res, err
	}
	if op.Bytes < 16 || op.Bytes > 4096 {
		return res, invalid("a secret has 16 to 4096 bytes")
	}
	uid, gid, err := h.accounts.owner(op.Owner, op.Group)
	if err != nil {
		return res, err
	}
	p, err := open(op.Path)
	if err != nil {
		return res, err
	}
	defer p.close()
	if st, there, err := p.lstat(); err != nil {
		return res, err
	} else if there && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return res, refuse("%s exists and is not a plain file", plain(p.path))
	} else if there {
		return res, nil
	}
	secret := make([]byte, op.Bytes)
	_, _ = rand.Read(secret) // never fails
	tmp, err := p.temporary(secret, op.Mode, uid, gid)
	if err != nil {
		return res, err
	}
	// A hard link, unlike a rename, never replaces a file that appeared meanwhile.
	err = unix.Linkat(p.dir, tmp, p.dir, p.name, 0)
	afterStep()
	_ = unix.Unlinkat(p.dir, tmp, 0)
	switch {
	case err == unix.EEXIST:
		return res, nil
	case err != nil:
		return res, ioFault(p.path, err)
	}
	res.Changed = true
	return res, p.sync()
}
