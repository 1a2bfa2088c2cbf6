package slurm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes/checksum"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// Formats of the records on hosts.
const (
	recordFormat = "berth.slurm/v1"
	workerFormat = "berth.slurm.worker/v1"
)

// record is the state of an instance, kept on its control host. It is written
// before anything else is made and removed after everything else is gone.
type record struct {
	Format  string    `json:"format"`
	Cluster string    `json:"cluster"`
	Unit    plan.Unit `json:"unit"` // as last configured
	// Files is the input from which the files on the host were rendered; nil: Unit and Joined.
	Files    *fileInput    `json:"files,omitempty"`
	Complete bool          `json:"complete"`
	Stopped  bool          `json:"stopped,omitempty"`  // on purpose
	Deleting bool          `json:"deleting,omitempty"` // no jobs are left; daemons are being removed
	Hostname string        `json:"hostname"`           // the host's own name, which slurmctld requires
	Ports    cluster.Ports `json:"ports"`
	cluster.JoinedWorkers
	cluster.PendingRemovals
	// Closing has the time from which a target waits for its jobs. It survives a
	// restart of the daemon, or a deadline would never be reached.
	Closing map[string]time.Time `json:"closing,omitempty"`
	journal
	upkeep
	// People are all users with an account on the hosts or in Slurm because of this
	// instance: recorded before they get one and until it is removed.
	People []schema.UnixUser `json:"people,omitempty"`
}

// journal has the unverified steps of a change: each is recorded before its effect.
type journal struct {
	// Writing is the input of the files of an unfinished change; nil: no change is unfinished. Each file on the host is rendered from
	// Files or from Writing.
	Writing *fileInput `json:"writing,omitempty"`
	// Owed are the steps that have to follow written files and started daemons, without Workers.
	Owed cluster.Steps `json:"owed,omitzero"`
	// RestartDue are the nodes whose slurmd has to restart if it runs.
	RestartDue []string `json:"restart_due,omitempty"`
}

// with returns a journal with more steps. nodes are those whose slurmd Workers restarts.
func (j journal) with(more cluster.Steps, nodes []string) journal {
	if more.Workers {
		j.RestartDue = slices.Compact(slices.Sorted(slices.Values(slices.Concat(j.RestartDue, nodes))))
	}
	more.Workers = false
	j.Owed = j.Owed.Or(more)
	return j
}

// equal reports whether two journals are equal.
func (j journal) equal(o journal) bool {
	return j.Owed == o.Owed && j.Writing == o.Writing && slices.Equal(j.RestartDue, o.RestartDue)
}

// upkeep is the part of a record that no change of the instance affects.
type upkeep struct {
	// MungeKey is the digest of the cluster's munge key since its creation. Only files with this key are the cluster's.
	MungeKey string `json:"munge_key_sha256,omitempty"`
	// BackedUp is the begin of the last backup; before the first, the creation.
	BackedUp time.Time `json:"backed_up,omitzero"`
	// BackupFault is nil unless the last attempt failed.
	BackupFault *backupFault `json:"backup_fault,omitempty"`
	// Anew: slurmctld may start without its state, because a person accepted the loss. It ends when slurmctld serves.
	Anew bool `json:"anew,omitempty"`
	// Raised: slurmctld has not served since FirstJob was raised.
	Raised bool `json:"raised,omitempty"`
	// FirstJob is higher than the ids of jobs before the last crash of slurmctld; 0: it had none.
	FirstJob int `json:"first_job,omitempty"`
	// Hung has the time of the last restart of each daemon that did not answer.
	Hung map[string]time.Time `json:"hung,omitempty"`
	// Done are the ids of the operations that were done, the newest last. None is done again.
	Done []string `json:"done_operations,omitempty"`
	// Marked has what operations changed at nodes in the last minutes, by node.
	Marked map[string]nodeMark `json:"marked_nodes,omitempty"`
	// Restarting has the process of the daemon before its restart, by the id of the operation.
	Restarting map[string]int `json:"restarting,omitempty"`
}

// nodeMark is what an operation changed at a node. slurmctld writes it down some seconds later: if it
// is killed before, the mark brings it back. Later, only people change it.
type nodeMark struct {
	Drain   string    `json:"drain,omitempty"`   // reason
	Resume  bool      `json:"resume,omitempty"`  // the drain of an operation was undone
	Comment string    `json:"comment,omitempty"` // labels
	At      time.Time `json:"at"`
}

// markLife is how long slurmctld may take to write a change down. It saves within 5 s.
const markLife = time.Minute

// fileInput is the changeable part of the input from which the files of a control stack are
// rendered.
type fileInput struct {
	Unit plan.Unit `json:"unit"`
	cluster.JoinedWorkers
	cluster.PendingRemovals
	FirstJob int `json:"first_job,omitempty"`
}

// workerRecord is kept on a worker and names its cluster. A worker belongs to one
// cluster at a time.
type workerRecord struct {
	Format  string            `json:"format"`
	Cluster string            `json:"cluster"`
	Key     schema.Key        `json:"key"`
	Node    string            `json:"node"`
	Users   []schema.UnixUser `json:"users,omitempty"` // accounts made here
}

const workerRecordPath = profile.WorkerRecord

func (r *record) encode() []byte { return encode(r) }

func (r *workerRecord) encode() []byte { return encode(r) }

// encode returns v as JSON with its checksum.
func encode(v any) []byte {
	raw, err := checksum.Encode(v)
	if err != nil {
		panic(fmt.Sprintf("slurm: %v", err)) // only an invalid RawMessage fails, and records have none
	}
	return raw
}

// errDamaged: a record is not as Berth wrote it, such as one that was cut off.
var errDamaged = checksum.ErrDamaged

func decodeRecord(raw []byte) (record, error) {
	var r record
	if err := checksum.Decode(raw, &r); err != nil {
		return r, err
	}
	if r.Format != recordFormat {
		return r, fmt.Errorf("format is %q, want %s: written by another version of Berth", r.Format, recordFormat)
	}
	return r, nil
}

// applied returns the cluster whose files worked last.
func (r *record) applied() (*cluster.Cluster, error) { return r.rendering(r.Files).cluster() }

// rendering returns the record with another input of its files; nil: its own.
func (r *record) rendering(f *fileInput) *record {
	of := *r
	if f != nil {
		of.Unit, of.JoinedWorkers, of.PendingRemovals, of.FirstJob = f.Unit, f.JoinedWorkers, f.PendingRemovals, f.FirstJob
	}
	return &of
}

// appliedFiles renders the files that worked last.
func (r *record) appliedFiles() (map[string]cluster.File, error) { return files(r.rendering(r.Files)) }

// hostFiles returns the contents that the files on the host may have: those of the files that worked last, and of those that are being
// written.
func (r *record) hostFiles() ([]map[string]cluster.File, error) {
	applied, err := r.appliedFiles()
	if err != nil || r.Writing == nil {
		return []map[string]cluster.File{applied}, err
	}
	next, err := files(r.rendering(r.Writing))
	if err != nil {
		return []map[string]cluster.File{applied}, nil // a write of files that cannot be rendered never began
	}
	return []map[string]cluster.File{applied, next}, nil
}

// input returns what the files are rendered from.
func (r *record) input() *fileInput {
	return &fileInput{r.Unit, r.JoinedWorkers.Clone(), r.PendingRemovals.Clone(), r.FirstJob}
}

// cluster returns the wanted cluster of a record.
func (r *record) cluster() (*cluster.Cluster, error) {
	return cluster.New(cluster.Declaration{
		Name: r.Cluster, Unit: &r.Unit, JoinedWorkers: r.JoinedWorkers, PendingRemovals: r.PendingRemovals, People: r.People,
		At: cluster.Place{Hostname: r.Hostname, Ports: r.Ports, FirstJob: r.FirstJob},
	})
}

// accounting returns what slurmdbd should have of the cluster of a record.
func (r *record) accounting() (accounting.Tree, error) {
	c, err := r.cluster()
	if err != nil {
		return accounting.Tree{}, err
	}
	return c.Accounting()
}

// files renders the files of a record.
func files(r *record) (map[string]cluster.File, error) {
	c, err := r.cluster()
	if err != nil {
		return nil, err
	}
	return c.Files()
}

// attachments returns the attachments of the unit, and those that are being detached.
func (r *record) attachments() []schema.EffectiveAttachment {
	return cluster.Attachments(&r.Unit, r.Detaching)
}

// isShared reports whether the accounts of the cluster are those of projects. Those of any other cluster
// may have any name, also one that is a project's elsewhere.
func (r *record) isShared() bool {
	return r.Unit.Effective.Key.Kind == schema.KindSharedRuntime || len(r.attachments()) > 0
}

// users returns the users of the unit, and those of projects that are being detached.
func (r *record) users() []schema.UnixUser { return cluster.Users(&r.Unit, r.People, r.Detaching) }

// workers returns the members with a line in slurm.conf, by node, with the CPUs and the shape in it.
func (r *record) workers() []plan.Member { return r.JoinedWorkers.Workers(&r.Unit) }

// listed returns the members with a line in slurm.conf, by node.
func (r *record) listed() []plan.Member { return r.JoinedWorkers.Listed(&r.Unit) }

// leaves reports whether a partition, undeclared by now, still has running jobs.
func (r *record) leaves(partition string) bool {
	return slices.Contains(cluster.PartitionNames(r.Leaving), partition)
}

// closes reports whether a partition is being closed.
func (r *record) closes(partition string) bool {
	return r.leaves(partition) || r.closing(partitionTarget(partition))
}

// current returns the unit with its members and attachments as they are: a member that has not left
// is as it joined, whatever was configured since, and a project whose jobs have not ended is still
// attached.
func (r *record) current() *plan.Unit {
	u := r.Unit
	u.Effective.Attachments = r.attachments()
	u.Members = slices.Clone(u.Members)
	for _, m := range r.Joined {
		if i := slices.IndexFunc(u.Members, func(o plan.Member) bool { return o.Name == m.Name }); i >= 0 {
			u.Members[i] = m
		} else {
			u.Members = append(u.Members, m)
		}
	}
	return &u
}

func (r *record) joined(name string) (plan.Member, bool) {
	i := slices.IndexFunc(r.Joined, func(m plan.Member) bool { return m.Name == name })
	if i < 0 {
		return plan.Member{}, false
	}
	return r.Joined[i], true
}

// follow takes over what a unit says of joined members, except a new shape or node: those
// need a leave and a join.
func (r *record) follow(u *plan.Unit) {
	r.Joined = slices.Clone(r.Joined)
	for i, was := range r.Joined {
		if m, ok := u.Member(was.Name); ok && m.Node == was.Node && m.HasResourcesOf(was) {
			r.Joined[i] = m
		}
	}
}

func (r *record) setJoined(m plan.Member) {
	r.dropJoined(m.Name)
	r.Joined = append(r.Joined, m)
	slices.SortFunc(r.Joined, func(a, b plan.Member) int { return strings.Compare(a.Name, b.Name) })
}

// setFound records the shape of a node's host; the zero value: it is unknown.
func (r *record) setFound(node string, shape schema.Shape) {
	r.Found = maps.Clone(r.Found)
	if shape == (schema.Shape{}) {
		delete(r.Found, node)
		return
	}
	if r.Found == nil {
		r.Found = map[string]schema.Shape{}
	}
	r.Found[node] = shape
}

func (r *record) dropJoined(name string) {
	r.Joined = slices.DeleteFunc(r.Joined, func(m plan.Member) bool { return m.Name == name })
}

// closing reports whether target is being closed.
func (r *record) closing(target string) bool {
	_, ok := r.Closing[target]
	return ok
}

// reopen removes targets from Closing.
func (r *record) reopen(targets ...string) {
	r.Closing = maps.Clone(r.Closing)
	for _, t := range targets {
		delete(r.Closing, t)
	}
}

// version is the declared version of Slurm, which each host was compared with.
func (r *record) version() cli.Version { return cli.Version(r.Unit.Effective.SoftwareVersion) }

// managedUsers returns the declared users if Berth makes their accounts, or none.
func (r *record) managedUsers() ([]schema.UnixUser, error) {
	set, err := cluster.Parse(r.Unit.Effective.Config)
	if err != nil || set.Identity != cluster.IdentityManaged {
		return nil, err
	}
	return r.users(), nil
}

// people returns all users with an account because of the instance, also while they get or lose it.
func (r *record) people() []schema.UnixUser {
	return cluster.UnionOfUsers(r.People, r.Unit.Effective.Users)
}

// undeclaredUsers returns the recorded users that are not declared and that no project that is
// being detached has.
func (r *record) undeclaredUsers() []schema.UnixUser {
	users := r.users()
	return slices.DeleteFunc(slices.Clone(r.People), func(u schema.UnixUser) bool { return slices.Contains(users, u) })
}
