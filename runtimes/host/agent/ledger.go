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
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

const (
	maxLedger  = 4 << 20 // bytes of a ledger file; there are at most two
	maxEntry   = 8 << 10 // bytes of a line
	maxEntries = 1000    // entries Find gives: the latest
	// maxSeq is the largest number of an entry: what reads JSON elsewhere rounds
	// larger ones. An entry with a larger one is damaged.
	maxSeq = 1<<53 - 1
)

// record appends lines to the ledger, durably: it returns once they would
// survive a loss of power. A failed sync is an error and not tried again.
func (a *Agent) record(ctx context.Context, stamp runtimes.Stamp, ops ...string) error {
	lock, err := a.lock(ctx, lockLedger, false)
	if err != nil {
		return err
	}
	defer lock.Close()
	name := a.ledgerName()
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return ioFault(name, err)
	}
	defer func() { _ = f.Close() }()
	size, seq, whole, err := lastEntry(f)
	if err != nil {
		return ioFault(name, err)
	}
	// The older file counts, too: this one may be new, or hold no whole entry, or
	// be an older copy that somebody put in its place.
	older, err := lastSeq(name + ".1")
	if err != nil && seq == 0 {
		return ioFault(name+".1", err)
	}
	seq = max(seq, older)
	if seq > maxSeq-uint64(len(ops)) {
		return ioFault(name, fmt.Errorf("entry %d is the last: there are no numbers left; set both ledger files aside", seq))
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
		lines.WriteByte('\n') // what a crash cut off stays, on a line of its own
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
	if size == 0 || size > maxLedger { // a new file's name must survive too
		d, err := openDir(a.state)
		if err != nil {
			return err
		}
		defer unix.Close(d)
		return place{dir: d, path: name}.sync()
	}
	return nil
}

func (a *Agent) ledgerName() string { return filepath.Join(a.state, "ledger.jsonl") }

// lastSeq is the number of the last entry of a ledger file; 0 if there is no file.
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

// lastEntry returns how long the ledger is, the highest number of the entries at
// its end, and whether it ends with a whole line.
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
		return 0, 0, false, errors.New("its end holds no entry, so that the next cannot be numbered: set it aside")
	}
	return size, seq, whole, nil
}

// find gives the entries of an action, oldest first; the latest if there are
// more than an answer holds. Lines that a crash cut off are passed over.
func (a *Agent) find(action string) ([]runtimes.LedgerEntry, error) {
	var found []runtimes.LedgerEntry
	quoted, err := json.Marshal(action)
	if err != nil {
		return nil, invalid("action id: %v", err)
	}
	for _, name := range []string{a.ledgerName() + ".1", a.ledgerName()} {
		f, err := os.Open(name)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, ioFault(name, err)
		}
		r := bufio.NewReaderSize(f, maxEntry)
		for {
			line, err := r.ReadSlice('\n')
			if errors.Is(err, bufio.ErrBufferFull) {
				continue // no entry is that long
			}
			if err != nil {
				break
			}
			var e runtimes.LedgerEntry
			if bytes.Contains(line, quoted) && json.Unmarshal(line, &e) == nil && e.Stamp.ActionID == action {
				if len(found) == maxEntries {
					found = found[1:]
				}
				found = append(found, e)
			}
		}
		_ = f.Close()
	}
	return found, nil
}
