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
	Files *fileInput `json:"files,omitempty"`
	phase
	Hostname string        `json:"hostname"` // the host's own name, which slurmctld requires
	Ports    cluster.Ports `json:"ports"`
	cluster.JoinedWorkers
	journal
	removals
	starts
	operations
	upkeep
	// People are all users with an account on the hosts or in Slurm because of this
	// instance: recorded before they get one and until it is removed.
	People []schema.UnixUser `json:"people,omitempty"`
}

// phase is how far the life of an instance has come.
type phase struct {
	Complete bool `json:"complete"`
	Stopped  bool `json:"stopped,omitempty"`  // on purpose
	Deleting bool `json:"deleting,omitempty"` // no jobs are left; daemons are being removed
}

// upkeep is the part of a record that no change of the instance affects.
type upkeep struct {
	// MungeKey is the digest of the cluster's munge key since its creation. Only files with this key are the cluster's.
	MungeKey string `json:"munge_key_sha256,omitempty"`
	// BackedUp is the begin of the last backup; before the first, the creation.
	BackedUp time.Time `json:"backed_up,omitzero"`
	// BackupFault is nil unless the last attempt failed.
	BackupFault *backupFault `json:"backup_fault,omitempty"`
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

// input returns what the files are rendered from.
func (r *record) input() *fileInput {
	return &fileInput{r.Unit, r.JoinedWorkers.Clone(), r.PendingRemovals.Clone(), r.FirstJob}
}

// cluster returns the wanted cluster of a record.
func (r *record) cluster() (*cluster.Cluster, error) {
	return cluster.New(cluster.Declaration{
		Name: r.Cluster, Unit: &r.Unit, JoinedWorkers: r.JoinedWorkers, PendingRemovals: r.PendingRemovals, People: r.People,
		At: cluster.ControlHost{Hostname: r.Hostname, Ports: r.Ports, FirstJob: r.FirstJob},
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

// withLine returns the members with a line in slurm.conf, by node.
func (r *record) withLine() []plan.Member { return r.JoinedWorkers.WithLine(&r.Unit) }

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

// backupFault is the last attempt of a backup if it failed.
type backupFault struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

// accountOf returns the account of the jobs of a unit without attachments.
func accountOf(u *plan.Unit) string {
	set, err := cluster.Parse(u.Effective.Config)
	if err != nil || u.Effective.Key.Kind == schema.KindSharedRuntime {
		return cluster.MembersAccount
	}
	return set.UsersAccount()
}
