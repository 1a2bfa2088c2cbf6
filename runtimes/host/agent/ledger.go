package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

const (
	maxLedger = 4 << 20 // bytes of a ledger file; there are at most two
	maxEntry  = 8 << 10 // bytes of a line
	// maxSeq is the largest number of an entry, as JSON readers may round larger
	// ones. An entry with a larger number is damaged.
	maxSeq  = 1<<53 - 1
	maxRead = 500 // entries in an answer
)

// ledger is the host's record of operations.
type ledger struct{ state stateDir }

// record appends entries to the ledger and syncs it. A failed sync is an error and is
// not retried.
func (l ledger) record(ctx context.Context, stamp runtimes.Stamp, ops ...string) error {
	lock, err := l.state.lock(ctx, lockLedger, false)
	if err != nil {
		return err
	}
	defer lock.Close()
	name := l.name()
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return ioFault(name, err)
	}
	defer func() { _ = f.Close() }()
	size, seq, whole, err := lastEntry(f)
	if err != nil {
		return ioFault(name, err)
	}
	// The older file counts too: this one may be new, have no complete entry, or be
	// an old copy that a person restored.
	older, err := lastSeq(name + ".1")
	if err != nil && seq == 0 {
		return ioFault(name+".1", err)
	}
	seq = max(seq, older)
	if seq > maxSeq-uint64(len(ops)) {
		return ioFault(name, fmt.Errorf("entry %d has the last number; move both ledger files away", seq))
	}
	if size > maxLedger {
		if err := os.Rename(name, name+".1"); err != nil {
			return ioFault(name, err)
		}
		_ = f.Close()
		if f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND|unix.O_NOFOLLOW, 0o600); err != nil {
			return ioFault(name, err)
		}
		whole = true
	}
	var lines bytes.Buffer
	if !whole {
		lines.WriteByte('\n') // a truncated entry of a crash keeps its own line
	}
	for _, op := range ops {
		seq++
		e := runtimes.LedgerEntry{Seq: seq, At: time.Now().UTC(), Stamp: stamp, Op: op}
		if err := WriteLine(&lines, e); err != nil {
			return ioFault(name, err)
		}
	}
	if _, err := f.Write(lines.Bytes()); err != nil {
		return ioFault(name, err)
	}
	if err := f.Sync(); err != nil {
		return ioFault(name, err)
	}
	if size == 0 || size > maxLedger { // the name of a new file has to be synced too
		d, err := openDir(string(l.state))
		if err != nil {
			return err
		}
		defer unix.Close(d)
		return place{dir: d, path: name}.sync()
	}
	return nil
}

// read returns the entries with a correlation id. It takes no lock, as an effect that hangs is
// what people look for: a line that is being written is left out.
func (l ledger) read(q *runtimes.ReadLedger) (runtimes.Result, error) {
	if q.CorrelationID == "" {
		return runtimes.Result{}, invalid("the ledger is read by a correlation id, and none is given")
	}
	id, err := json.Marshal(q.CorrelationID)
	if err != nil {
		return runtimes.Result{}, invalid("the correlation id is not text: %v", err)
	}
	files, closeAll, err := l.open()
	if err != nil {
		return runtimes.Result{}, err
	}
	defer closeAll()
	part := &runtimes.LedgerPart{Entries: []runtimes.LedgerEntry{}}
	for _, f := range files {
		if err := eachLine(f, func(line []byte) {
			var e runtimes.LedgerEntry
			if !bytes.Contains(line, id) || json.Unmarshal(line, &e) != nil || e.Stamp.CorrelationID != q.CorrelationID {
				return
			}
			if part.Entries = append(part.Entries, e); len(part.Entries) == 2*maxRead {
				keepLast(part)
			}
		}); err != nil {
			return runtimes.Result{}, ioFault(f.Name(), err)
		}
	}
	keepLast(part)
	return runtimes.Result{Ledger: part}, nil
}

// keepLast leaves the newest entries of an answer, and counts the others.
func keepLast(part *runtimes.LedgerPart) {
	if over := len(part.Entries) - maxRead; over > 0 {
		part.Entries, part.Earlier = slices.Delete(part.Entries, 0, over), part.Earlier+over
	}
}

// open opens the files of the ledger that exist, the older one first.
func (l ledger) open() (files []*os.File, closeAll func(), err error) {
	closeAll = func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	var newest os.FileInfo
	for _, name := range []string{l.name(), l.name() + ".1"} {
		f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			closeAll()
			return nil, nil, ioFault(name, err)
		}
		files = append([]*os.File{f}, files...)
		info, err := f.Stat()
		switch {
		case err != nil:
			closeAll()
			return nil, nil, ioFault(name, err)
		case newest == nil:
			newest = info
		case os.SameFile(newest, info): // renamed between the two
			_ = f.Close()
			files = files[1:]
		}
	}
	return files, closeAll, nil
}

// eachLine calls do with each complete line that an entry may have. It holds one line in memory.
func eachLine(r io.Reader, do func(line []byte)) error {
	in := bufio.NewReaderSize(r, maxEntry)
	for tooLong := false; ; {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			tooLong = true
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		default:
			if !tooLong {
				do(line)
			}
			tooLong = false
		}
	}
}

func (l ledger) name() string { return l.state.path("ledger.jsonl") }

// lastSeq returns the number of the last entry of a ledger file; 0: no file.
func lastSeq(name string) (uint64, error) {
	f, err := os.Open(name)
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	_, seq, _, err := lastEntry(f)
	return seq, err
}

// lastEntry returns the size of the ledger, the highest number among its last entries,
// and whether it ends with a complete line.
func lastEntry(f *os.File) (size int64, seq uint64, whole bool, err error) {
	st, err := f.Stat()
	if err != nil {
		return 0, 0, false, err
	}
	size = st.Size()
	tail := make([]byte, min(size, 4*maxEntry))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, false, err
	}
	whole = size == 0 || tail[len(tail)-1] == '\n'
	for line := range bytes.SplitSeq(tail, []byte("\n")) {
		var e runtimes.LedgerEntry
		if json.Unmarshal(line, &e) == nil && e.Seq > seq && e.Seq <= maxSeq {
			seq = e.Seq
		}
	}
	if seq == 0 && size > int64(len(tail)) {
		return 0, 0, false, errors.New("no valid entry at its end to number the next one; move the file away")
	}
	return size, seq, whole, nil
}
