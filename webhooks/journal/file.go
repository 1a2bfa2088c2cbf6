package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// line is a line of the file: a delivery (Works), a work that is done for all
// deliveries up to N (Done), or the mark. In the file it follows its checksum.
type line[W comparable] struct {
	N     uint64     `json:"n,omitempty"`
	At    *time.Time `json:"at,omitempty"`
	ID    string     `json:"id,omitempty"`
	Works []W        `json:"works,omitempty"`
	Done  *W         `json:"done,omitempty"`
	Mark  *time.Time `json:"mark,omitempty"`
}

const (
	maxLine      = 64 << 10
	maxUnwritten = 1 << 20 // bytes that wait for the disk; beyond it the file is rewritten
)

// checksums are those of a line's JSON (CRC-32C), as eight hexadecimal digits before it: a line
// that the disk returns damaged is skipped, and never read as another work.
var checksums = crc32.MakeTable(crc32.Castagnoli)

// encode returns a line as the file has it; false if it is too long.
func encode[W comparable](l line[W]) ([]byte, bool) {
	data, err := json.Marshal(l)
	if err != nil {
		panic("journal: a work cannot be encoded as JSON: " + err.Error()) // W is one of our own types
	}
	out := fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(data, checksums), data)
	return out, len(out) <= maxLine
}

// decode reads a line of the file; false if it is malformed or damaged.
func decode[W comparable](text []byte) (l line[W], ok bool) {
	sum, data, found := bytes.Cut(bytes.TrimSuffix(text, []byte("\n")), []byte(" "))
	if !found || string(sum) != fmt.Sprintf("%08x", crc32.Checksum(data, checksums)) {
		return l, false
	}
	return l, json.Unmarshal(data, &l) == nil
}

// write queues a line; false if it is too long.
func (j *Journal[W]) write(l line[W]) bool {
	data, ok := encode(l)
	if ok && len(j.lines) < maxUnwritten { // beyond it the whole file is rewritten, this line included
		j.lines = append(j.lines, data...)
	}
	return ok
}

// commit returns when the lines of a batch are on the disk. The first caller writes
// the lines of all that wait: many deliveries cost one fsync.
func (j *Journal[W]) commit(b *batch) error {
	late := time.NewTimer(j.o.Patience)
	defer late.Stop()
	select {
	case j.disk <- struct{}{}:
	case <-late.C:
		return fmt.Errorf("journal %s: the disk has not answered for %v", j.o.Path, j.o.Patience)
	}
	defer func() { <-j.disk }()
	if !b.written {
		_ = j.put(true) // b gets the error: it is the current batch
	}
	return b.err
}

// put writes the queued lines. The caller holds disk.
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
		b.written, b.err = true, err
	}
	return err
}

func (j *Journal[W]) append(lines []byte, sync bool) error {
	// If the directory was deleted, as a cache may be, writes succeed but the file is
	// lost: rewrite it.
	if j.file == nil || len(lines) >= maxUnwritten || j.length > j.o.Length && j.length > 2*j.compact || !j.there() {
		return j.rewrite()
	}
	n, err := j.file.Write(lines)
	j.length += int64(n)
	if err == nil && sync {
		err = j.o.Sync(j.file)
	}
	if err != nil {
		// The state on the disk is unknown: after a failed fsync, the next one may
		// succeed without having written. So the file is rewritten.
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
		_ = j.file.Close() // the file is rewritten
		j.file = nil
	}
}

// rewrite writes the whole state into a new file and replaces the old one. The
// caller holds disk.
func (j *Journal[W]) rewrite() (err error) {
	j.giveUp()
	defer func() {
		if err != nil {
			err = fmt.Errorf("journal %s: %w", j.o.Path, err)
		}
	}()
	if j.unread {
		if err := os.Rename(j.o.Path, j.aside()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the existing file is unreadable, and renaming it failed: %w", err)
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
	data := j.state()
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
	j.file, j.length, j.compact = file, int64(n), int64(n)
	return nil
}

// aside is the new path of an unreadable file.
func (j *Journal[W]) aside() string {
	return j.o.Path + ".unreadable-" + j.o.Now().UTC().Format("20060102T150405.000000000Z")
}

// makeDir makes a directory and its parents, and flushes their names to the disk.
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
		return nil // if it is a file, opening the journal in it fails
	case err != nil:
		return err
	}
	if err := j.syncDir(filepath.Dir(dir)); err != nil {
		return errors.Join(err, os.Remove(dir)) // otherwise the next call takes it for one whose name is flushed
	}
	return nil
}

// syncDir flushes the names in a directory to the disk.
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

// state is the whole state as lines.
func (j *Journal[W]) state() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []byte
	now := j.o.Now().UTC().Truncate(time.Millisecond)
	add := func(l line[W]) {
		if data, ok := encode(l); ok {
			out = append(out, data...)
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
	// The pending works once more, with the number of their last delivery.
	for w, t := range j.pending {
		add(line[W]{N: t.from, At: &t.since, Works: []W{w}})
		add(line[W]{N: t.last, At: &t.since, Works: []W{w}})
	}
	return out
}

// read loads the file.
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
		case errors.Is(err, bufio.ErrBufferFull): // longer than any written line
			for bad++; errors.Is(err, bufio.ErrBufferFull); {
				_, err = in.ReadSlice('\n')
			}
		case errors.Is(err, io.EOF) && len(text) > 0: // torn by a crash: the delivery was not acknowledged
			bad++
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	} else {
		err = j.cannot(err)
	}
	if bad > 0 {
		err = errors.Join(err, fmt.Errorf("journal %s: %d lines are unreadable and skipped", j.o.Path, bad))
	}
	return errors.Join(err, file.Close())
}

// cannot records that the file is unreadable, so that it is not overwritten.
func (j *Journal[W]) cannot(err error) error {
	j.unread = true
	return fmt.Errorf("journal %s: unreadable; it is renamed before anything is written: %w", j.o.Path, err)
}

// take applies a line; false if it is malformed or damaged.
func (j *Journal[W]) take(text []byte) bool {
	l, ok := decode[W](text)
	if !ok {
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
	if len(j.pending)+len(l.Works) > 2*j.o.Most { // Take never writes so many
		return false
	}
	j.add(l.ID, taken[W]{n: l.N, at: *l.At, works: l.Works})
	return true
}
