package slurm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// Formats of the records on hosts.
const (
	recordFormat = "berth.slurm/v1"
	workerFormat = "berth.slurm.worker/v1"
)

// record is what the control host keeps of an instance. It is the runtime's
// only memory: written before anything else is made and removed after
// everything else is gone.
type record struct {
	Format   string        `json:"format"`
	Cluster  string        `json:"cluster"`
	Unit     plan.Unit     `json:"unit"` // as last applied
	Complete bool          `json:"complete"`
	Stopped  bool          `json:"stopped,omitempty"`  // on purpose
	Deleting bool          `json:"deleting,omitempty"` // jobs are dealt with; daemons go
	Hostname string        `json:"hostname"`           // the host's own name, which slurmctld insists on
	Ports    ports         `json:"ports"`
	Joined   []plan.Member `json:"joined,omitempty"` // members that came in, half way at least, by name
	Gres     []gresLine    `json:"gres,omitempty"`   // lines of gres.conf, by node
	// Closing says since when the jobs of a thing are being waited for: it must
	// survive a restart of the daemon, or a deadline would never come.
	Closing map[string]time.Time `json:"closing,omitempty"`
	// Owed is what has to follow files that were written and daemons that were
	// started, and has not been proven yet.
	Owed owed `json:"owed,omitzero"`
	// People is everybody who may have an account on the hosts or with Slurm for
	// the sake of this instance: it names them before they get one, and until
	// they have lost it.
	People []schema.UnixUser `json:"people,omitempty"`
	// Drained are the reasons of other people's drains, by node, of nodes that
	// are forgotten and join anew.
	Drained map[string]string `json:"drained,omitempty"`
}

// owed is what is still to be done about a change that a crash may cut off.
type owed struct {
	Restart     bool `json:"restart,omitempty"`     // of slurmctld
	Reconfigure bool `json:"reconfigure,omitempty"` // so that nodes get what slurmctld has
	Database    bool `json:"database,omitempty"`    // a restart of slurmdbd
	Settle      bool `json:"settle,omitempty"`      // after a start: what slurmctld forgot
}

// or is what either of two owes.
func (o owed) or(p owed) owed {
	return owed{o.Restart || p.Restart, o.Reconfigure || p.Reconfigure, o.Database || p.Database, o.Settle || p.Settle}
}

func (o owed) String() string {
	var words []string
	for _, w := range []struct {
		is   bool
		name string
	}{{o.Restart, "restart of slurmctld"}, {o.Reconfigure, "reconfigure"}, {o.Database, "restart of slurmdbd"}, {o.Settle, "look at the nodes after a start"}} {
		if w.is {
			words = append(words, w.name)
		}
	}
	return strings.Join(words, ", ")
}

// ports of one control stack; no two stacks of a host share one.
type ports struct {
	Slurmctld int `json:"slurmctld"`
	Slurmdbd  int `json:"slurmdbd"`
}

// gresLine is one line of gres.conf: one kind of GPU on one node.
type gresLine struct {
	Node    string `json:"node"`
	Type    string `json:"type"`
	Devices string `json:"devices"`
	Count   int    `json:"count"`
}

// workerRecord is what a worker keeps: whose it is. A worker belongs to one
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

// encode is v as indented JSON. The values here are plain.
func encode(v any) []byte {
	raw, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		panic(fmt.Sprintf("slurm: encode %T: %v", v, err)) // only a RawMessage that is no JSON gets here, and none is read
	}
	return append(raw, '\n')
}

func decodeRecord(raw []byte) (record, error) {
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, err
	}
	if r.Format != recordFormat {
		return r, fmt.Errorf("format is %q, want %s: another version of Berth wrote it", r.Format, recordFormat)
	}
	return r, nil
}

func (r *record) joined(name string) (plan.Member, bool) {
	i := slices.IndexFunc(r.Joined, func(m plan.Member) bool { return m.Name == name })
	if i < 0 {
		return plan.Member{}, false
	}
	return r.Joined[i], true
}

func (r *record) setJoined(m plan.Member) {
	r.dropJoined(m.Name)
	r.Joined = append(r.Joined, m)
	slices.SortFunc(r.Joined, func(a, b plan.Member) int { return strings.Compare(a.Name, b.Name) })
}

func (r *record) dropJoined(name string) {
	r.Joined = slices.DeleteFunc(r.Joined, func(m plan.Member) bool { return m.Name == name })
}

// setGres makes the lines of m's node those that m needs, and says whether
// they were others before.
func (r *record) setGres(m plan.Member) bool {
	before := slices.Clone(r.Gres)
	r.dropGres(m.Node)
	for _, g := range m.GPUs {
		r.Gres = append(r.Gres, gresLine{Node: m.Node, Type: g.Type, Devices: g.Devices, Count: g.Count})
	}
	slices.SortStableFunc(r.Gres, func(a, b gresLine) int { return strings.Compare(a.Node, b.Node) })
	return !slices.Equal(before, r.Gres)
}

func (r *record) dropGres(node string) {
	r.Gres = slices.DeleteFunc(r.Gres, func(g gresLine) bool { return g.Node == node })
}

// closing says whether a thing is being closed.
func (r *record) closing(thing string) bool {
	_, ok := r.Closing[thing]
	return ok
}

// reopen forgets that things are being closed.
func (r *record) reopen(things ...string) {
	r.Closing = maps.Clone(r.Closing)
	for _, t := range things {
		delete(r.Closing, t)
	}
}

// people is everybody who may have an account for the sake of the instance.
func (r *record) people() []schema.UnixUser { return union(r.People, r.Unit.Instance.Users) }

// leftover is who of them is not declared.
func (r *record) leftover() []schema.UnixUser {
	return slices.DeleteFunc(slices.Clone(r.People), func(u schema.UnixUser) bool { return slices.Contains(r.Unit.Instance.Users, u) })
}

// union is users of both lists, each once, by name.
func union(a, b []schema.UnixUser) []schema.UnixUser {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(a, b schema.UnixUser) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return slices.Compact(all)
}

// keepDrain remembers why somebody drained a node, or, without a reason, that
// there is nothing to remember.
func (r *record) keepDrain(node, why string) {
	r.Drained = maps.Clone(r.Drained)
	if why == "" {
		delete(r.Drained, node)
		return
	}
	if r.Drained == nil {
		r.Drained = map[string]string{}
	}
	r.Drained[node] = why
}

// What can be closing.
func nodeThing(node string) string      { return "node " + node }
func userThing(user string) string      { return "user " + user }
func partitionThing(name string) string { return "partition " + name }
func (c *control) clusterThing() string { return "cluster " + c.stack.Cluster }

// close puts on record that a thing is being closed as of now, unless it has
// been for longer: before anything is done about it, so that it can be taken
// back if the thing is wanted again. Nothing else of the record is written:
// what is only in memory has not been applied yet.
func (c *control) close(ctx context.Context, thing string) error {
	if c.rec.closing(thing) {
		return nil
	}
	closing := maps.Clone(c.rec.Closing)
	if closing == nil {
		closing = map[string]time.Time{}
	}
	closing[thing] = c.r.now().UTC().Truncate(time.Second)
	c.rec.Closing, c.disk.Closing = closing, closing
	_, err := c.do(ctx, c.writeRecord(&c.disk))
	return err
}

// owe puts on record what has to follow what is done next, as close does.
func (c *control) owe(ctx context.Context, o owed) error {
	o = c.disk.Owed.or(o)
	if c.disk.Owed == o {
		return nil
	}
	c.rec.Owed, c.disk.Owed = o, o
	_, err := c.do(ctx, c.writeRecord(&c.disk))
	return err
}

// paid says that what was owed is done and proven.
func (c *control) paid(ctx context.Context, o owed) error {
	left := owed{
		c.disk.Owed.Restart && !o.Restart, c.disk.Owed.Reconfigure && !o.Reconfigure,
		c.disk.Owed.Database && !o.Database, c.disk.Owed.Settle && !o.Settle,
	}
	if c.disk.Owed == left {
		return nil
	}
	c.rec.Owed, c.disk.Owed = left, left
	_, err := c.do(ctx, c.writeRecord(&c.disk))
	return err
}

// name puts on record who is about to get an account, before they do, while
// nobody looks at this host's records to see whose accounts are needed.
func (c *control) name(ctx context.Context, users []schema.UnixUser) error {
	defer c.r.lock("host " + c.host.Name())()
	all := union(c.disk.people(), users)
	c.rec.People, c.disk.People = all, all
	_, err := c.do(ctx, c.writeRecord(&c.disk))
	return err
}

// clusterName is the name of the cluster of key: readable, and unlike that of
// any other key. It is part of table names in the database, which end at 64
// characters, hence at most 40.
func clusterName(key schema.Key) string {
	sum := sha256.Sum256([]byte(key.String()))
	readable := strings.ReplaceAll(strings.Join([]string{key.Tenant, key.Project, key.Name}, "_"), "-", "_")
	if readable[0] < 'a' || readable[0] > 'z' {
		readable = "c" + readable
	}
	const hash = 8
	readable = strings.TrimRight(readable[:min(len(readable), 40-1-hash)], "_")
	return readable + "_" + hex.EncodeToString(sum[:])[:hash]
}

// Stacks listen between these ports, below those that systems hand out.
const (
	firstPort = 20000
	lastPort  = 27999
)

// choosePorts picks the ports of a cluster: by its name, so that it mostly gets
// the same ones again, and none that another stack of the host has on record.
func choosePorts(cluster string, others []record) (ports, error) {
	used := map[int]bool{}
	for _, o := range others {
		used[o.Ports.Slurmctld], used[o.Ports.Slurmdbd] = true, true
	}
	h := fnv.New32a()
	h.Write([]byte(cluster))
	const pairs = (lastPort - firstPort + 1) / 2
	start := int(h.Sum32() % pairs)
	for i := range pairs {
		p := firstPort + 2*((start+i)%pairs)
		if !used[p] && !used[p+1] {
			return ports{Slurmctld: p, Slurmdbd: p + 1}, nil
		}
	}
	return ports{}, fmt.Errorf("ports %d to %d are all taken by %d other instances", firstPort, lastPort, len(others))
}
