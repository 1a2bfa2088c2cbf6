package agent

import (
	"context"
	"fmt"
	"strconv"

	"berth/runtimes"
)

// leadership is an epoch with the identity of its leader, or "" if no leader is known
// yet.
type leadership struct {
	epoch  uint64
	leader string
}

// yieldsTo reports whether the leader of a stamp replaces this leadership: with a
// later epoch, or as the first known leader of this one.
func (l leadership) yieldsTo(s runtimes.Stamp) bool {
	return s.Epoch > l.epoch || s.Epoch == l.epoch && l.leader == "" && s.Leader != ""
}

// admit returns an error for a stamp that does not belong to this leadership.
func (l leadership) admit(s runtimes.Stamp) error {
	switch {
	case s.Epoch < l.epoch:
		return &Fault{Code: runtimes.CodeStaleEpoch, Message: fmt.Sprintf(
			"epoch %d of this daemon is older than %d, which this host knows: another daemon has "+
				"become the leader, or a person edited /var/lib/berth/epoch", s.Epoch, l.epoch)}
	case s.Leader != l.leader:
		return &Fault{Code: runtimes.CodeStaleEpoch, Message: fmt.Sprintf("epoch %d belongs to another leader on this host", s.Epoch)}
	}
	return nil
}

// The files of the leadership in the state directory. Each has the epoch, so
// that the agent can restore a lost or damaged one from the other.
const (
	epochFile  = "epoch"  // "EPOCH"
	leaderFile = "leader" // "EPOCH LEADER"
)

// leaders refuses the effects of deposed leaders.
type leaders struct{ state stateDir }

// latest returns the latest leadership that this host knows. One readable file is enough: each has the epoch.
func (l leaders) latest() (leadership, error) {
	seen, noEpoch := l.read(epochFile)
	named, noLeader := l.read(leaderFile)
	switch none := (leadership{}); {
	case noEpoch != nil && named == none:
		return none, noEpoch
	case noLeader != nil && seen == none:
		return none, noLeader
	case named.epoch >= seen.epoch: // later after a crash between the two writes
		return named, nil
	}
	return seen, nil
}

// read reads a file of the leadership. One that does not exist has none.
func (l leaders) read(file string) (leadership, error) {
	words, err := l.state.words(file)
	if err != nil || words == nil {
		return leadership{}, err
	}
	epoch, err := strconv.ParseUint(words[0], 10, 64)
	switch {
	case err == nil && file == epochFile && len(words) == 1:
		return leadership{epoch: epoch}, nil
	case err == nil && file == leaderFile && len(words) == 2:
		return leadership{epoch, words[1]}, nil
	}
	return leadership{}, unreadableState(l.state.path(file))
}

// enter admits the effects of a leader until leave is called. A later leader enters
// only when the effects of earlier ones have ended.
func (l leaders) enter(ctx context.Context, stamp runtimes.Stamp) (leave func(), err error) {
	if stamp.Epoch == 0 {
		return nil, refuse("an effect needs the epoch of a leader")
	}
	f, err := l.state.lock(ctx, lockEpoch, true)
	if err != nil {
		return nil, err
	}
	seen, err := l.latest()
	if err == nil && seen.yieldsTo(stamp) {
		_ = f.Close()
		if f, err = l.state.lock(ctx, lockEpoch, false); err != nil {
			return nil, err
		}
		// Another request may have been faster.
		if seen, err = l.latest(); err == nil && seen.yieldsTo(stamp) {
			seen = leadership{stamp.Epoch, stamp.Leader}
			err = l.raise(seen)
		}
		if err == nil {
			err = tryLock(f, lockEpoch, true) // downgrading the lock is atomic
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
func (l leaders) raise(to leadership) error {
	epoch := strconv.FormatUint(to.epoch, 10)
	if to.leader != "" {
		if err := l.state.write(leaderFile, epoch+" "+to.leader+"\n"); err != nil {
			return err
		}
	}
	return l.state.write(epochFile, epoch+"\n")
}
