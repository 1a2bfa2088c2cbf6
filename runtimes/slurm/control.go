package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/checksum"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
	"berth/schema/usage"
)

// errNoRecord: the control host does not have the instance, or its record is errDamaged and is made again.
var errNoRecord = errors.New("the control host has no record of the instance")

// control is the control host of a unit with the unit's record.
type control struct {
	site
	log   *slog.Logger
	env   *environment
	key   schema.Key
	stack profile.Stack
	rec   record // the wanted record
	disk  record // the record on the host
	// ends: jobs are ended even if accounting is lost: the unit is being deleted, or an operation abandoned its usage.
	ends bool

	installed installation
	keepUsage func(ctx context.Context, jobs []usage.Job) error // of runtimes.Change; may be nil
	tellLost  func(jobs []plan.LostJob)                         // of runtimes.Change; may be nil
	// seen is the accounting of the last answer of slurmdbd; nil: not asked yet.
	seen *accounting.Tree
}

func newControl(env *environment, m plan.Member, key schema.Key, stamp runtimes.Stamp) *control {
	return &control{
		site: site{env.hosts.Host(m), stamp}, log: slog.New(slog.DiscardHandler), env: env, key: key,
		stack: profile.Stack{Cluster: cluster.Name(key)},
	}
}

// preflightOp checks a host for conflicts with paths and services.
func (c *control) preflightOp(services []string, paths ...string) runtimes.Op {
	p := &runtimes.Preflight{Paths: paths}
	for _, name := range services {
		p.Services = append(p.Services, *c.service(name, "").Service)
	}
	return runtimes.Op{Preflight: p}
}

// worker returns the host of a worker.
func (c *control) worker(m plan.Member) site {
	return site{c.env.hosts.Host(m), c.stamp}
}

// cli returns a call of one of Slurm's tools on this stack. Its exit status is a
// result for the caller, not an error.
func (c *control) cli(program string, args ...string) runtimes.Op {
	return cliOp(c.stack.Conf(), c.env.timeouts.Call, program, args...)
}

// sacctmgr returns a call of sacctmgr, which waits for the database and takes longer with
// more users.
func (c *control) sacctmgr(args ...string) runtimes.Op {
	return cliOp(c.stack.Conf(), c.env.timeouts.Ready, "sacctmgr", args...)
}

func (c *control) service(name, verb string) runtimes.Op {
	unit := c.stack.Cluster
	if name == profile.MariaDB {
		unit = ""
	}
	return runtimes.Op{Service: &runtimes.Service{Name: name, Unit: unit, Verb: verb,
		TimeoutMS: int(c.env.timeouts.Ready.Milliseconds()) * 2 / 3}}
}

// slurmd returns a service operation with the parameters that a start needs.
func (c *control) slurmd(m, control plan.Member, verb string) runtimes.Op {
	op := c.service(profile.Slurmd, verb)
	op.Service.Params = map[string]string{
		profile.ParamServer: net.JoinHostPort(control.Address, strconv.Itoa(c.rec.Ports.Slurmctld)),
		profile.ParamNode:   m.Node,
	}
	if devices := gpuFiles(m); len(devices) > 0 {
		op.Service.Params[profile.ParamDevices] = strings.Join(devices, ",")
	}
	return op
}

// onWorkers calls f for all joined workers in parallel. It skips a worker with which there is
// no contact: an observation shows later what it lacks.
func (c *control) onWorkers(ctx context.Context, f func(context.Context, site, plan.Member) error) error {
	return c.onEachWorker(func(m plan.Member) error {
		err := f(ctx, c.worker(m), m)
		if isContactLost(err) {
			c.log.Warn("unreachable worker skipped", "worker", m.Name, "reason", err.Error())
			return nil
		}
		return err
	})
}

// tryWorkers is onWorkers for work on which the rest of the cluster does not depend: it returns
// the errors of workers as ErrWaiting.
func (c *control) tryWorkers(ctx context.Context, f func(context.Context, site, plan.Member) error) error {
	return asWaiting(c.onWorkers(ctx, f))
}

// onEachWorker calls f for all joined workers in parallel and returns their errors. A
// failure does not interrupt the other workers.
func (c *control) onEachWorker(f func(plan.Member) error) error {
	return errors.Join(inParallel(c.rec.Joined, f)...)
}

// isContactLost reports whether there was no contact with a host, or not to the end.
func isContactLost(err error) bool {
	return errors.Is(err, runtimes.ErrUnreachable) || errors.Is(err, runtimes.ErrUncertain)
}

// asWaiting turns an error that blocks nothing else into ErrWaiting: a person has to mend its
// cause. It returns lost contact, another leader and a context that ended unchanged.
func asWaiting(err error) error {
	if err == nil || isContactLost(err) || errors.Is(err, runtimes.ErrStaleEpoch) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return waiting("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
}

// recordFile is the record of a unit on its control host, with its copy.
type recordFile struct {
	site
	stack profile.Stack
}

func (c *control) file() recordFile { return recordFile{c.site, c.stack} }

// readOps are the operations whose results useRecord takes.
func (f recordFile) readOps() []runtimes.Op {
	return []runtimes.Op{readOp(f.stack.Record()), readOp(f.stack.RecordCopy())}
}

// eitherRecord decodes a record, or its copy where the record is gone or damaged. The error is that of the record. differ: one
// of the two has to be written again.
func eitherRecord(res, copied runtimes.Result) (rec record, differ bool, err error) {
	err = errNoRecord
	if !res.Missing {
		if rec, err = decodeRecord(res.Data); !errors.Is(err, errDamaged) {
			return rec, copied.Missing || !bytes.Equal(res.Data, copied.Data), err
		}
	}
	if !copied.Missing {
		if rec, fault := decodeRecord(copied.Data); fault == nil {
			return rec, true, nil
		}
	}
	return rec, false, err
}

// useRecord checks a record that was read, and its copy, and makes it the current one. differ: one of the two has to be
// written again.
func (c *control) useRecord(res, copied runtimes.Result) (differ bool, err error) {
	rec, differ, err := eitherRecord(res, copied)
	switch {
	case errors.Is(err, errNoRecord):
		return false, err
	case errors.Is(err, errDamaged):
		return false, fmt.Errorf("%w: host %s: %s: %w", errNoRecord, c.host.Name(), c.stack.Record(), err)
	case err != nil:
		return false, fmt.Errorf("host %s: %s: %w", c.host.Name(), c.stack.Record(), err)
	case rec.Cluster != c.stack.Cluster || rec.Unit.Effective.Key != c.key:
		return false, fmt.Errorf("host %s: the record %s is of %s in cluster %s, not of %s in cluster %s", c.host.Name(), c.stack.Record(),
			rec.Unit.Effective.Key, rec.Cluster, c.key, c.stack.Cluster)
	}
	c.rec, c.disk = rec, rec
	return differ, nil
}

// openRecord makes a record that was read the current one, and writes it and its copy again if they differ.
func (c *control) openRecord(ctx context.Context, read, copied runtimes.Result) error {
	differ, err := c.useRecord(read, copied)
	if !differ {
		return err
	}
	c.log.Warn("record and its copy made equal", "host", c.host.Name(), "path", c.stack.Record())
	return c.doAll(ctx, append(c.file().putAside(read), c.file().write(&c.disk)...)...)
}

// putAside returns the operation that keeps the text of a damaged record for people; none for another one.
func (f recordFile) putAside(res runtimes.Result) []runtimes.Op {
	if _, err := decodeRecord(res.Data); res.Missing || err == nil {
		return nil
	}
	text := encode(map[string]string{"record": string(res.Data)})
	return []runtimes.Op{writeOp(f.stack.DamagedRecord(), cluster.File{Data: text, Mode: 0o600})}
}

// others reads the records of the other instances on the host.
func (f recordFile) others(ctx context.Context) ([]record, error) {
	res, err := f.do(ctx, runtimes.Op{List: &runtimes.List{Path: profile.InstanceDir}})
	if err != nil {
		return nil, err
	}
	records := map[string]bool{} // also of those that have their copy only
	for _, name := range res[0].Names {
		path := profile.InstanceDir + "/" + profile.RecordOf(name)
		if strings.HasSuffix(path, ".json") && path != workerRecordPath && path != f.stack.Record() {
			records[path] = true
		}
	}
	var ops []runtimes.Op
	for _, path := range slices.Sorted(maps.Keys(records)) {
		ops = append(ops, readOp(path), readOp(profile.CopyOf(path)))
	}
	if len(ops) == 0 {
		return nil, nil
	}
	res, err = f.do(ctx, ops...)
	if err != nil {
		return nil, err
	}
	var recs []record
	for i := 0; i < len(res); i += 2 {
		rec, _, err := eitherRecord(res[i], res[i+1])
		switch {
		case errors.Is(err, errNoRecord): // removed since the list was read
		case err != nil: // also a damaged one, until its instance has made it again: it has users and ports
			return nil, fmt.Errorf("host %s: %s: %w", f.host.Name(), ops[i].Read.Path, err)
		default:
			recs = append(recs, rec)
		}
	}
	return recs, nil
}

// write returns the operations that write a record and its copy. After a crash between the two, the record counts.
func (f recordFile) write(rec *record) []runtimes.Op {
	of := cluster.File{Data: rec.encode(), Mode: 0o600}
	return []runtimes.Op{writeOp(f.stack.Record(), of), writeOp(f.stack.RecordCopy(), of)}
}

func (c *control) writeWorkerRecord(m plan.Member, users []schema.UnixUser) runtimes.Op {
	rec := workerRecord{Format: workerFormat, Cluster: c.stack.Cluster, Key: c.key, Node: m.Node, Users: users}
	return writeOp(workerRecordPath, cluster.File{Data: rec.encode(), Mode: 0o600})
}

func (c *control) save(ctx context.Context) error {
	if err := c.doAll(ctx, c.file().write(&c.rec)...); err != nil {
		return err
	}
	c.disk = c.rec
	return nil
}

// saveDisk writes the record of the state on the host, without changes that are not applied yet.
func (c *control) saveDisk(ctx context.Context) error {
	return c.doAll(ctx, c.file().write(&c.disk)...)
}

// close records the time from which target is being closed, unless it is closing
// already. It is recorded before any effect, so the effect can be undone if the
// target is wanted again. No other field is written: the rest of c.rec is not
// applied yet.
func (c *control) close(ctx context.Context, target string) error {
	if c.rec.closing(target) {
		return nil
	}
	closing := maps.Clone(c.rec.Closing)
	if closing == nil {
		closing = map[string]time.Time{}
	}
	closing[target] = c.env.now().UTC().Truncate(time.Second)
	c.rec.Closing, c.disk.Closing = closing, closing
	return c.saveDisk(ctx)
}

// addPending records steps that have to follow the next effect.
func (c *control) addPending(ctx context.Context, o cluster.Steps) error {
	return c.setJournal(ctx, c.disk.journal.with(o, c.rec.Nodes()))
}

// clearPending removes steps that are done and verified.
func (c *control) clearPending(ctx context.Context, o cluster.Steps) error {
	left := c.disk.journal
	left.Owed = left.Owed.Without(o)
	return c.setJournal(ctx, left)
}

// setJournal records a journal.
func (c *control) setJournal(ctx context.Context, j journal) error {
	if c.disk.journal.equal(j) {
		return nil
	}
	c.rec.journal, c.disk.journal = j, j
	return c.saveDisk(ctx)
}

// recordUsers records users before they get accounts. The lock keeps another
// instance from reading this host's records to decide which accounts to remove.
func (c *control) recordUsers(ctx context.Context, users []schema.UnixUser) error {
	defer c.env.lock("host " + c.host.Name())()
	all := cluster.UnionOfUsers(c.disk.people(), users)
	c.rec.People, c.disk.People = all, all
	return c.saveDisk(ctx)
}

// forgetUsers returns the operations that take removed users out of the record. They belong under
// the lock of the host with the removal of their accounts: each of two instances that remove a
// user at the same time would else keep the account for the other one.
func (c *control) forgetUsers(users []schema.UnixUser) []runtimes.Op {
	left := func(all []schema.UnixUser) []schema.UnixUser {
		return slices.DeleteFunc(slices.Clone(all), func(u schema.UnixUser) bool { return slices.Contains(users, u) })
	}
	c.disk.People, c.disk.Unit.Effective.Users = left(c.disk.People), left(c.disk.Unit.Effective.Users)
	return c.file().write(&c.disk)
}

func (c *control) clusterTarget() string { return "cluster " + c.stack.Cluster }

// readWorker parses the record of a worker that was read on s. A missing one is empty. One that is errDamaged belongs to
// the cluster whose record says that the node has joined.
func (s site) readWorker(res runtimes.Result) (rec workerRecord, err error) {
	if res.Missing {
		return rec, nil
	}
	if err = checksum.Decode(res.Data, &rec); err == nil && rec.Format != workerFormat {
		err = fmt.Errorf("format is %q, want %s", rec.Format, workerFormat)
	}
	if err != nil {
		return rec, fmt.Errorf("host %s: %s: %w", s.host.Name(), workerRecordPath, err)
	}
	return rec, nil
}

// gpuFiles returns the device files of a member's GPUs.
func gpuFiles(m plan.Member) []string {
	var paths []string
	for _, g := range m.GPUs {
		files, _ := g.DeviceFiles() // an invalid one was refused at the join
		paths = append(paths, files...)
	}
	return paths
}

// installation is the version of Slurm that the control host has installed, as far as
// it was asked.
type installation struct {
	mu      sync.Mutex
	version cli.Version // empty: not asked
}
