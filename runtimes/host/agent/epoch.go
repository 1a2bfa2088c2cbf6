package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/runtimes"
)

// leadership is an epoch and the identity of the leader that it belongs to; ""
// where no leader has named itself yet.
type leadership struct {
	epoch  uint64
	leader string
}

// yieldsTo returns true if the leader of a stamp takes this leadership's place:
// with a later epoch, or as the first to name itself in this one.
func (l leadership) yieldsTo(s runtimes.Stamp) bool {
	return s.Epoch > l.epoch || s.Epoch == l.epoch && l.leader == "" && s.Leader != ""
}

// admit returns the fault of a stamp that does not belong to this leadership.
func (l leadership) admit(s runtimes.Stamp) error {
	switch {
	case s.Epoch < l.epoch:
		return &Fault{Code: CodeStaleEpoch, Message: fmt.Sprintf("epoch %d, and this host has seen %d", s.Epoch, l.epoch)}
	case s.Leader != l.leader:
		return &Fault{Code: CodeStaleEpoch, Message: fmt.Sprintf("epoch %d belongs to another leader on this host", s.Epoch)}
	}
	return nil
}

// The files of the state directory that hold the leadership. The epoch stands in
// a file of its own, which helpers that know no leader read and write, too. The
// leader stands beside it with its epoch, and counts for no other one.
const (
	epochFile  = "epoch"  // "EPOCH"
	leaderFile = "leader" // "EPOCH LEADER"
)

// seen is the latest leadership this host has seen.
func (a *Agent) seen() (leadership, error) {
	var seen leadership
	fields, err := a.stateWords(epochFile, 1)
	if err != nil {
		return leadership{}, err
	}
	if fields != nil {
		if seen.epoch, err = a.stateNumber(epochFile, fields[0]); err != nil {
			return leadership{}, err
		}
	}
	if fields, err = a.stateWords(leaderFile, 2); err != nil || fields == nil {
		return seen, err
	}
	epoch, err := a.stateNumber(leaderFile, fields[0])
	if err == nil && epoch >= seen.epoch { // later where a crash came between the two files
		seen = leadership{epoch, fields[1]}
	}
	return seen, err
}

// stateWords reads a file of the state directory that holds so many words; nil if
// there is no such file.
func (a *Agent) stateWords(file string, count int) ([]string, error) {
	name := filepath.Join(a.state, file)
	b, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, ioFault(name, err)
	}
	words := strings.Fields(string(b))
	if len(words) != count {
		return nil, unreadableState(name)
	}
	return words, nil
}

func (a *Agent) stateNumber(file, word string) (uint64, error) {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		return 0, unreadableState(filepath.Join(a.state, file))
	}
	return n, nil
}

func unreadableState(name string) error {
	return &Fault{Code: CodeIO, Message: name + " cannot be read; without it a deposed leader cannot be refused: restore it"}
}

// enter lets effects of a leader through, until leave: a later leader comes in
// only when the effects of earlier ones have ended.
func (a *Agent) enter(ctx context.Context, stamp runtimes.Stamp) (leave func(), err error) {
	if stamp.Epoch == 0 {
		return nil, refuse("an effect needs the epoch of a leader")
	}
	f, err := a.lock(ctx, lockEpoch, true)
	if err != nil {
		return nil, err
	}
	seen, err := a.seen()
	if err == nil && seen.yieldsTo(stamp) {
		_ = f.Close()
		if f, err = a.lock(ctx, lockEpoch, false); err != nil {
			return nil, err
		}
		// Another may have been faster.
		if seen, err = a.seen(); err == nil && seen.yieldsTo(stamp) {
			seen = leadership{stamp.Epoch, stamp.Leader}
			err = a.raise(seen)
		}
		if err == nil {
			err = tryLock(f, lockEpoch, true) // a lock of one's own is lowered in one step
		}
	}
	if err == nil {
		err = seen.admit(stamp)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// raise records a leadership. The leader is written before the epoch: after a
// crash between the two, the epoch already belongs to it.
func (a *Agent) raise(to leadership) error {
	epoch := strconv.FormatUint(to.epoch, 10)
	if to.leader != "" {
		if err := a.writeState(leaderFile, epoch+" "+to.leader+"\n"); err != nil {
			return err
		}
	}
	return a.writeState(epochFile, epoch+"\n")
}

func (a *Agent) writeState(file, text string) error {
	p, err := open(filepath.Join(a.state, file))
	if err != nil {
		return err
	}
	defer p.close()
	return p.replace([]byte(text), 0o600, os.Geteuid(), os.Getegid())
}
