package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// line is one of the file: a delivery, that a work was done for all up to one, or
// the mark.
type line[W comparable] struct {
	N     uint64     `json:"n,omitempty"`
	At    *time.Time `json:"at,omitempty"`
	ID    string     `json:"id,omitempty"`
	Works []W        `json:"works,omitempty"`
	Done  *W         `json:"done,omitempty"`
	Mark  *time.Time `json:"mark,omitempty"`
}

const (
	maxLine  = 64 << 10
	maxUnput = 1 << 20 // bytes that wait for a disk; then the file is written anew
)

// write appends a line to those that are to be written; false: it is too long.
func (j *Journal[W]) write(l line[W]) bool {
	data, err := json.Marshal(l)
	if err != nil {
		panic("journal: a work is no JSON: " + err.Error()) // of our own types
	}
	if len(data) >= maxLine {
		return false
	}
	if len(j.lines) < maxUnput { // else all of the file is written, and this with it
		j.lines = append(append(j.lines, data...), '\n')
	}
	return true
}

// commit returns when the lines of a batch are on the disk. Who comes first
// brings along those of everybody who waits: many deliveries cost one fsync.
func (j *Journal[W]) commit(b *batch) error {
	late := time.NewTimer(j.o.Patience)
	defer late.Stop()
	select {
	case j.disk <- struct{}{}:
	case <-late.C:
		return fmt.Errorf("journal %s: the disk has not answered for %v", j.o.Path, j.o.Patience)
	}
	defer func() { <-j.disk }()
	if !b.over {
		_ = j.put(true) // b has the error, as it is what waits to be written
	}
	return b.err
}

// put writes what is to be written. The caller holds disk.
func (j *Journal[W]) put(sync bool) error {
	j.mu.Lock()
	lines, b := j.lines, j.batch
	if sync {
		j.batch = &batch{}
	}
	j.lines = nil
	j.mu.Unlock()
	err := j.append(lines, sync)
	if sync {
		b.over, b.err = true, err
	}
	return err
}

func (j *Journal[W]) append(lines []byte, sync bool) error {
	// Where the directory was taken away, as a cache may be, the file is still
	// written and nobody will ever find it.
	if j.file == nil || len(lines) >= maxUnput || j.length > j.o.Length && j.length > 2*j.least || !j.there() {
		return j.rewrite()
	}
	n, err := j.file.Write(lines)
	j.length += int64(n)
	if err == nil && sync {
		err = j.o.Sync(j.file)
	}
	if err != nil {
		// What is on the disk now nobody knows; after an fsync that failed, the next
		// may succeed without having written. So it begins anew.
		j.giveUp()
		return fmt.Errorf("journal %s: %w", j.o.Path, err)
	}
	return nil
}

func (j *Journal[W]) there() bool {
	open, err := j.file.Stat()
	named, errNamed := os.Stat(j.o.Path)
	return err == nil && errNamed == nil && os.SameFile(open, named)
}

func (j *Journal[W]) giveUp() {
	if j.file != nil {
		_ = j.file.Close() // it is of no use any more
		j.file = nil
	}
}

// rewrite writes all that is remembered into a new file and puts it in the place
// of the old one. The caller holds disk.
func (j *Journal[W]) rewrite() (err error) {
	j.giveUp()
	defer func() {
		if err != nil {
			err = fmt.Errorf("journal %s: %w", j.o.Path, err)
		}
	}()
	if j.unread {
		if err := os.Rename(j.o.Path, j.aside()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("what stands there could not be read, and cannot be put aside: %w", err)
		}
		j.unread = false
	}
	dir := filepath.Dir(j.o.Path)
	if err := j.makeDir(dir); err != nil {
		return err
	}
	file, err := os.OpenFile(j.o.Path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	data := j.remembered()
	n, err := file.Write(data)
	if err == nil {
		err = j.o.Sync(file)
	}
	if err == nil {
		err = os.Rename(j.o.Path+".new", j.o.Path)
	}
	if err == nil {
		err = j.syncDir(dir)
	}
	if err != nil {
		return errors.Join(err, file.Close(), remove(j.o.Path+".new"))
	}
	j.file, j.length, j.least = file, int64(n), int64(n)
	return nil
}

// aside is where a file is put that cannot be read.
func (j *Journal[W]) aside() string {
	return j.o.Path + ".unreadable-" + j.o.Now().UTC().Format("20060102T150405.000000000Z")
}

// makeDir makes a directory, and those above it, whose names last.
func (j *Journal[W]) makeDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if above := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && above != dir {
		if err := j.makeDir(above); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o700)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil // if it is no directory, no file is made in it
	case err != nil:
		return err
	}
	if err := j.syncDir(filepath.Dir(dir)); err != nil {
		return errors.Join(err, os.Remove(dir)) // else it would be taken for one that lasts
	}
	return nil
}

// syncDir makes the names in a directory last.
func (j *Journal[W]) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(j.o.Sync(d), d.Close())
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// remembered is all that is remembered, as lines.
func (j *Journal[W]) remembered() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []byte
	now := j.o.Now().UTC().Truncate(time.Millisecond)
	add := func(l line[W]) {
		if data, err := json.Marshal(l); err == nil && len(data) < maxLine { // as write has it
			out = append(append(out, data...), '\n')
		}
	}
	over := map[W]bool{}
	for _, id := range j.order {
		t := j.ids[id]
		add(line[W]{N: t.n, At: &t.at, ID: id, Works: t.works})
		for _, w := range t.works {
			over[w] = true
		}
	}
	for w := range over {
		add(line[W]{N: j.n, At: &now, Done: &w})
	}
	if !j.mark.IsZero() {
		add(line[W]{Mark: &j.mark})
	}
	// What is not done once more: this line is of all of its deliveries.
	for w, t := range j.todo {
		add(line[W]{N: t.from, At: &t.since, Works: []W{w}})
		add(line[W]{N: t.last, At: &t.since, Works: []W{w}})
	}
	return out
}

// read takes in what the file says.
func (j *Journal[W]) read() error {
	file, err := os.Open(j.o.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return j.cannot(err)
	}
	in := bufio.NewReaderSize(file, maxLine)
	bad := 0
	for err == nil {
		var text []byte
		text, err = in.ReadSlice('\n')
		switch {
		case err == nil:
			if !j.take(text) {
				bad++
			}
		case errors.Is(err, bufio.ErrBufferFull): // no line of ours
			for bad++; errors.Is(err, bufio.ErrBufferFull); {
				_, err = in.ReadSlice('\n')
			}
		case errors.Is(err, io.EOF) && len(text) > 0: // torn off; who delivered it was told nothing
			bad++
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	} else {
		err = j.cannot(err)
	}
	if bad > 0 {
		err = errors.Join(err, fmt.Errorf("journal %s: %d lines could not be read and are passed over", j.o.Path, bad))
	}
	return errors.Join(err, file.Close())
}

// cannot notes that the file cannot be read, and so must not be written over.
func (j *Journal[W]) cannot(err error) error {
	j.unread = true
	return fmt.Errorf("journal %s: it cannot be read; it is put aside before anything is written: %w", j.o.Path, err)
}

// take takes in what a line says; false: it is none.
func (j *Journal[W]) take(text []byte) bool {
	var l line[W]
	if json.Unmarshal(text, &l) != nil {
		return false
	}
	if l.Mark != nil {
		j.mark = *l.Mark
		return true
	}
	if l.At == nil || l.N == 0 {
		return false
	}
	j.n = max(j.n, l.N)
	if l.Done != nil {
		j.finish(*l.Done, l.N, *l.At)
		return true
	}
	if len(j.todo)+len(l.Works) > 2*j.o.Most { // nothing that was written by Take
		return false
	}
	j.add(l.ID, taken[W]{n: l.N, at: *l.At, works: l.Works})
	return true
}
