package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
)

// A cluster keeps the munge key that it was made with: the record has its digest. A file with another key would split the
// cluster, as a munged that runs has read the one before. Copies are on the controller and on each worker, and one that is
// right restores the others. The key itself is in no record, log or error.

// keyMode is that of a file with a munge key. munged refuses one that others can read.
const keyMode = 0o400

// lostKey is what a person does about a key of which no copy is left.
const lostKey = "no worker that answers has it: put it back from a backup, or let all workers leave and join again"

// adoptKey takes the key on the controller as the cluster's if the record has none.
func (c *control) adoptKey(st runtimes.FileStat) {
	if c.rec.MungeKey == "" {
		c.rec.MungeKey, c.disk.MungeKey = st.SHA256, st.SHA256
	}
}

// keyFault returns how the file of a munge key is otherwise than Berth made it; "": it is as made. owners are as of ownersOf.
func (r *record) keyFault(node string, st runtimes.FileStat, owners map[string]uint32) string {
	uid, isKnown := owners[profile.MungeUser]
	switch {
	case !st.Exists || st.SHA256 != r.MungeKey:
		return st.Path + " on " + node + " is not the munge key of the cluster"
	case st.Mode != keyMode || isKnown && st.UID != uid:
		return fmt.Sprintf("%s on %s has the mode %04o and the uid %d; want %04o and that of %s",
			st.Path, node, st.Mode, st.UID, keyMode, profile.MungeUser)
	}
	return ""
}

// restoreKey brings the key on the controller back from a copy, and restarts munged, which may have read another one. It
// stops munged before the write, so that an interrupted repair is a munged that does not run. Without workers nobody else
// needs the key, and the file on the controller is the new one.
func (c *control) restoreKey(ctx context.Context, st runtimes.FileStat, owners map[string]uint32) error {
	c.adoptKey(st)
	fault := c.rec.keyFault(c.host.Name(), st, owners)
	if fault == "" {
		return nil
	}
	stop, start := c.service(profile.Munged, "stop"), c.service(profile.Munged, "start")
	if len(c.rec.Joined) == 0 {
		res, err := c.do(ctx, stop, makeKey(c.stack), start, statOp(c.stack.MungeKey()))
		if err != nil {
			return err
		}
		c.rec.MungeKey, c.disk.MungeKey = res[3].Stats[0].SHA256, res[3].Stats[0].SHA256
		return c.saveDisk(ctx)
	}
	key := c.copyOfKey(ctx)
	if key == nil {
		c.log.Warn("munge key not restored", "host", c.host.Name(), "reason", fault+"; "+lostKey)
		return nil // the drift says it, and most actions need no new key
	}
	err := c.doAll(ctx, stop, writeOp(c.stack.MungeKey(), file{key, keyMode, profile.MungeUser}), start)
	if refused := new(runtimes.OpError); errors.As(err, &refused) { // such as by a full disk, or for a link in its place
		c.log.Warn("munge key not restored", "host", c.host.Name(), "reason", err.Error())
		return nil
	}
	if err == nil {
		c.log.Warn("munge key restored", "host", c.host.Name(), "reason", fault)
	}
	return err
}

// copyOfKey returns the cluster's munge key from the controller or a worker; nil: none that answers has it.
func (c *control) copyOfKey(ctx context.Context) []byte {
	read := func(s site, path string) []byte {
		res, err := s.do(ctx, readOp(path))
		if err != nil || digest(res[0].Data) != c.rec.MungeKey {
			return nil
		}
		return res[0].Data
	}
	if key := read(c.site, c.stack.MungeKey()); key != nil {
		return key
	}
	for _, key := range inParallel(c.rec.Joined, func(m plan.Member) []byte { return read(c.worker(m), profile.WorkerMungeKey) }) {
		if key != nil {
			return key
		}
	}
	return nil
}

// keyDrift is keyFault, with what a person has to do if Berth has no copy.
func (v *observation) keyDrift() string {
	joined := v.ctl.rec.Joined
	hasCopy := v.key.SHA256 == v.ctl.rec.MungeKey || slices.ContainsFunc(joined, func(m plan.Member) bool { return v.workers[m.Name].hasKey })
	if v.keyFault == "" || hasCopy || len(joined) == 0 {
		return v.keyFault
	}
	return v.keyFault + "; " + lostKey
}

// makeKey makes the munge key of a cluster, unless it exists.
func makeKey(s profile.Stack) runtimes.Op {
	return runtimes.Op{Secret: &runtimes.MakeSecret{
		Path: s.MungeKey(), Bytes: profile.MungeKeySize, Mode: keyMode, Owner: profile.MungeUser, Group: profile.MungeUser,
	}}
}
