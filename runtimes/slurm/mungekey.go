package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// A cluster keeps the munge key that it was made with: the record has its digest. A file with another key would split the
// cluster, because a running munged keeps the key that it read at its start. Copies are on the controller and on each worker, and one that
// is right restores the others. The key itself is in no record, log or error.

// keyMode is that of a file with a munge key. munged refuses one that others can read.
const keyMode = 0o400

// lostKey tells a person how to replace a key without any copy left.
const lostKey = "no worker that answers has it: put it back from a backup, or let all workers leave and join again"

// mungeKey keeps the key of a cluster on its controller.
type mungeKey struct{ *control }

// adopt takes a key as the cluster's if the record has none.
func (c mungeKey) adopt(digest string) {
	if c.rec.MungeKey == "" {
		c.rec.MungeKey, c.disk.MungeKey = digest, digest
	}
}

// keyFault returns how the file of a munge key is otherwise than Berth made it; "": it is as made. owners are as of ownersOf.
func (r *record) keyFault(node string, st runtimes.FileStat, owners map[string]uint32) string {
	uid, isKnown := owners[profile.MungeUser]
	switch {
	case !st.Exists:
		return st.Path + " on " + node + " is missing"
	case st.Type == "link":
		return st.Path + " on " + node + " is a symbolic link; remove it"
	case r.MungeKey != "" && st.SHA256 != r.MungeKey:
		return st.Path + " on " + node + " is not the munge key of the cluster"
	case st.Mode != keyMode || isKnown && st.UID != uid:
		return fmt.Sprintf("%s on %s has the mode %04o and the uid %d; want %04o and that of %s",
			st.Path, node, st.Mode, st.UID, keyMode, profile.MungeUser)
	}
	return ""
}

// restore brings the key on the controller back from a copy, and restarts a munged that runs, which may have read another
// one. It stops munged before the write: an interrupted repair leaves munged stopped, which an observation shows. A cluster
// without workers takes the controller's key, or a new one.
func (c mungeKey) restore(ctx context.Context, st runtimes.FileStat, owners map[string]uint32) error {
	c.adopt(st.SHA256)
	fault := c.rec.keyFault(c.host.Name(), st, owners)
	if fault == "" {
		return nil
	}
	notRestored := func(why string) error { // the drift says it, and most actions need no new key
		c.log.Warn("munge key not restored", "host", c.host.Name(), "reason", why)
		return nil
	}
	if st.Type == "link" || st.Type == "dir" {
		return notRestored(fmt.Sprintf("%s on %s is a %s: remove it", st.Path, c.host.Name(), st.Type))
	}
	key, err := c.copy(ctx)
	if err != nil {
		return err
	}
	write := writeOp(c.stack.Munge().Key(), cluster.File{Data: key, Mode: keyMode, Owner: profile.MungeUser})
	switch {
	case key == nil && len(c.rec.Joined) > 0:
		return notRestored(fault + "; " + lostKey)
	case key == nil:
		write = makeKey(c.stack)
	}
	runs, err := c.runs(ctx, c.service(profile.Munged, "state"))
	if err != nil {
		return err
	}
	stop, start := []runtimes.Op{c.service(profile.Munged, "stop")}, []runtimes.Op{c.service(profile.Munged, "start")}
	if !runs {
		stop, start = nil, nil
	}
	err = c.doAll(ctx, append(stop, write)...)
	refused := new(runtimes.OpError)
	if errors.As(err, &refused) { // such as by a full disk
		return errors.Join(c.doAll(ctx, start...), notRestored(err.Error()))
	}
	if err != nil {
		return err
	}
	res, err := c.do(ctx, append(start, statOp(c.stack.Munge().Key()))...)
	if err != nil {
		return err
	}
	c.log.Warn("munge key restored", "host", c.host.Name(), "reason", fault)
	if made := res[len(res)-1].Stats[0].SHA256; made != c.rec.MungeKey {
		c.rec.MungeKey, c.disk.MungeKey = made, made
		return c.saveDisk(ctx)
	}
	return nil
}

// read returns the key on the controller. Another one than the cluster's is an error.
func (c mungeKey) read(ctx context.Context) ([]byte, error) {
	key, err := c.do(ctx, readOp(c.stack.Munge().Key()))
	if err != nil {
		return nil, err
	}
	if digest(key[0].Data) == c.rec.MungeKey {
		return key[0].Data, nil
	}
	why := lostKey
	if there, _ := c.copy(ctx); there != nil {
		why = "a worker has it, and it cannot be written there: see that the path is no link and its disk has room"
	}
	return nil, fmt.Errorf("host %s: %s is not the munge key of the cluster; %s", c.host.Name(), c.stack.Munge().Key(), why)
}

// copy returns the cluster's munge key from the controller or a worker; nil: none that answers has it. Without workers,
// the key on the controller is the cluster's, whatever the record says.
func (c mungeKey) copy(ctx context.Context) ([]byte, error) {
	own, err := c.do(ctx, readOp(c.stack.Munge().Key()))
	if err != nil {
		return nil, err
	}
	if key := own[0].Data; digest(key) == c.rec.MungeKey || len(c.rec.Joined) == 0 && len(key) > 0 {
		return key, nil
	}
	for _, key := range inParallel(c.rec.Joined, func(m plan.Member) []byte {
		res, err := c.worker(m).do(ctx, readOp(profile.WorkerMungeKey))
		if err != nil || digest(res[0].Data) != c.rec.MungeKey {
			return nil
		}
		return res[0].Data
	}) {
		if key != nil {
			return key, nil
		}
	}
	return nil, nil
}

// keyDrift is keyFault, with the repair by a person if Berth has no copy.
func (v *observation) keyDrift() string {
	joined := v.ctl.rec.Joined
	hasCopy := v.key.SHA256 != "" && v.key.SHA256 == v.ctl.rec.MungeKey ||
		slices.ContainsFunc(joined, func(m plan.Member) bool { return v.workers[m.Name].hasKey })
	if v.keyFault == "" || hasCopy || len(joined) == 0 {
		return v.keyFault
	}
	return v.keyFault + "; " + lostKey
}

// makeKey makes the munge key of a cluster, unless it exists.
func makeKey(s profile.Stack) runtimes.Op {
	return runtimes.Op{Secret: &runtimes.MakeSecret{
		Path: s.Munge().Key(), Bytes: profile.MungeKeySize, Mode: keyMode, Owner: profile.MungeUser, Group: profile.MungeUser,
	}}
}
