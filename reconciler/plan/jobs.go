package plan

import (
	"cmp"
	"slices"
	"time"
)

// Jobs is a snapshot of the jobs of a unit. Running and Pending are always right. No digest
// and no status covers it, as each change of a status is a commit.
type Jobs struct {
	Running int `json:"running"`
	Pending int `json:"pending"`
	// Groups say more about the jobs. A job in no group runs on no known node.
	Groups []JobGroup `json:"groups,omitempty"`
	At     time.Time  `json:"at,omitzero"` // time of the snapshot
	// Unknown says why there is no snapshot, such as "dev-lab-1 did not answer".
	Unknown string `json:"unknown,omitempty"`
}

// JobGroup counts jobs that differ in their ids only.
type JobGroup struct {
	Count   int    `json:"count"`
	Pending bool   `json:"pending,omitempty"`
	User    string `json:"user,omitempty"`
	Account string `json:"account,omitempty"`
	QoS     string `json:"qos,omitempty"`
	// Partitions are those of the submission while the jobs are pending, and otherwise the one
	// where they run.
	Partitions []string `json:"partitions,omitempty"`
	Nodes      []string `json:"nodes,omitempty"` // of running jobs
	JobRequest
	// Parts are the other parts of heterogeneous jobs, without a count: the worst impact on a part counts for the job.
	Parts []JobGroup `json:"parts,omitempty"`
	// Minutes is how long each job may run; 0: unknown, or as long as the limits allow.
	Minutes int      `json:"minutes,omitempty"`
	IDs     []string `json:"ids,omitempty"` // the first MaxJobIDs
	// Unread: a part of what the scheduler says of them could not be read. They count as running on each node.
	Unread bool `json:"unread,omitempty"`
}

// JobRequest is what each job of a group asks for.
type JobRequest struct {
	GPUs      int      `json:"gpus,omitempty"`
	CPUs      int      `json:"cpus,omitempty"`
	NodeCount int      `json:"node_count,omitempty"`  // that the job has, or asks for; 0: unknown
	Named     []string `json:"named_nodes,omitempty"` // nodes by name
	// Allowed are the nodes that the job does not exclude, if it excludes some by name; empty: it excludes none, or all.
	Allowed []string      `json:"allowed_nodes,omitempty"`
	Each    NodeResources `json:"each_node,omitzero"` // the least that each of its nodes must have, while the job waits
}

// MaxJobIDs limits the ids of a JobGroup and of a JobSet, and the users of a JobSet.
const MaxJobIDs = 10

// JobRule says what an action does to the jobs that it selects. All other jobs continue, or
// stay in the queue.
type JobRule struct {
	// A rule selects the jobs on one of the nodes, in one of the partitions, of one of the
	// users, accounts or QoS; with All every job.
	All        bool     `json:"all,omitempty"`
	Nodes      []string `json:"nodes,omitempty"`
	Partitions []string `json:"partitions,omitempty"`
	Users      []string `json:"users,omitempty"`
	Accounts   []string `json:"accounts,omitempty"`
	QoS        []string `json:"qos,omitempty"`
	// CancelAfter is when running jobs are cancelled, in seconds; 0: the action waits for
	// them.
	CancelAfter int `json:"cancel_after_seconds,omitempty"`
	// CancelsQueued: queued jobs are cancelled; but one that was also submitted to
	// partitions that stay moves to them.
	CancelsQueued bool `json:"cancels_queued,omitempty"`
	// Leave: the nodes leave the unit. A queued job that asks for one of them by name ends, and never ran.
	Leave bool `json:"leave,omitempty"`
}

// selects reports whether a rule selects jobs. A queued job without any other partition is
// selected by its partitions.
func (r *JobRule) selects(g *JobGroup) bool {
	return r.All || len(r.Nodes) > 0 && g.Unread && !g.Pending || meets(r.Nodes, g.Nodes) || meets(r.Partitions, g.Partitions) ||
		g.User != "" && slices.Contains(r.Users, g.User) ||
		g.Account != "" && slices.Contains(r.Accounts, g.Account) ||
		g.QoS != "" && slices.Contains(r.QoS, g.QoS)
}

// unread reports whether a part of what the scheduler says of the jobs, or of a part of them, could not be read.
func (g *JobGroup) unread() bool {
	return g.Unread || slices.ContainsFunc(g.Parts, func(p JobGroup) bool { return p.Unread })
}

// meets reports whether two lists have a name in common.
func meets(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// JobImpact is what actions do to the jobs of a snapshot. Each job is in one set: the running
// ones in the first four, the queued ones in the others.
type JobImpact struct {
	Ended       JobSet `json:"ended,omitzero"`        // cancelled after EndAfter
	Waited      JobSet `json:"waited,omitzero"`       // the action waits until they have ended
	Preemptible JobSet `json:"preemptible,omitzero"`  // go on, and may end for jobs of others from now on
	Continue    JobSet `json:"continue,omitzero"`     // not affected
	Cancelled   JobSet `json:"cancelled,omitzero"`    // removed from the queue
	Moved       JobSet `json:"moved,omitzero"`        // to other partitions
	CannotStart JobSet `json:"cannot_start,omitzero"` // stay in the queue, and ask for more than they can have
	Delayed     JobSet `json:"delayed,omitzero"`      // wait until running jobs with the same limits have ended
	MayStart    JobSet `json:"may_start,omitzero"`    // could not start before, and can now
	Kept        JobSet `json:"kept,omitzero"`         // not affected
	// EndAfter are the times in seconds after which jobs of Ended are cancelled, sorted.
	EndAfter []int     `json:"end_after_seconds,omitempty"`
	At       time.Time `json:"at,omitzero"` // time of the snapshot
	// Unread are ids of affected running jobs of which a part could not be read, at most MaxJobIDs.
	Unread []string `json:"unread,omitempty"`
	// Unknown says why there is no snapshot. All sets are empty then.
	Unknown string `json:"unknown,omitempty"`
}

// JobSet counts jobs and names some of them.
type JobSet struct {
	Count    int           `json:"count"`
	Accounts []AccountJobs `json:"accounts,omitempty"` // those with most jobs first, at most MaxJobIDs
	Users    []UserJobs    `json:"users,omitempty"`    // those with most jobs first, at most MaxJobIDs
	More     int           `json:"more_users,omitempty"`
	IDs      []string      `json:"ids,omitempty"` // at most MaxJobIDs
}

// AccountJobs counts jobs of an account.
type AccountJobs struct {
	Account string `json:"account"`
	Count   int    `json:"count"`
}

// UserJobs counts jobs of a user in an account.
type UserJobs struct {
	User    string `json:"user"`
	Account string `json:"account,omitempty"`
	Count   int    `json:"count"`
}

// Known reports whether there was a snapshot.
func (i *JobImpact) Known() bool { return i != nil && i.Unknown == "" && !i.At.IsZero() }

// Running returns the number of running jobs.
func (i *JobImpact) Running() int {
	return i.Ended.Count + i.Waited.Count + i.Preemptible.Count + i.Continue.Count
}

// Queued returns the number of queued jobs.
func (i *JobImpact) Queued() int {
	return i.Cancelled.Count + i.Moved.Count + i.CannotStart.Count + i.Delayed.Count + i.MayStart.Count + i.Kept.Count
}

// fate is what becomes of a job. Of those by rules, the greatest counts.
type fate int

const (
	continues fate = iota // or stays in the queue
	waitedFor
	moves
	ends // or is cancelled

	// The others are those of jobs that no rule selects.
	preemptible
	mayStart
	delayed
	cannotStart
)

// set returns the set of jobs with a fate.
func (i *JobImpact) set(f fate, pending bool) *JobSet {
	if pending {
		return map[fate]*JobSet{continues: &i.Kept, moves: &i.Moved, ends: &i.Cancelled, mayStart: &i.MayStart, delayed: &i.Delayed,
			cannotStart: &i.CannotStart}[f]
	}
	return map[fate]*JobSet{continues: &i.Continue, waitedFor: &i.Waited, ends: &i.Ended, preemptible: &i.Preemptible}[f]
}

// ImpactOn returns what the actions together do to the jobs of a snapshot, each job counted
// once; nil for no snapshot.
func ImpactOn(actions []Action, jobs *Jobs) *JobImpact {
	switch {
	case jobs == nil:
		return nil
	case jobs.Unknown != "":
		return &JobImpact{Unknown: jobs.Unknown}
	}
	groups := jobs.Groups
	running, pending := jobs.Running, jobs.Pending
	for _, g := range groups {
		if g.Pending {
			pending -= g.Count
		} else {
			running -= g.Count
		}
	}
	groups = append(slices.Clone(groups), JobGroup{Count: running}, JobGroup{Count: pending, Pending: true})
	e := effectsOf(actions, groups)
	t := impactTally{impact: JobImpact{At: jobs.At}, users: map[*JobSet]map[UserJobs]int{}}
	for i := range groups {
		if g := &groups[i]; g.Count > 0 {
			t.add(g, &e)
		}
	}
	return t.result()
}

// Estimate sets the impacts of a plan and its actions on a snapshot of jobs; nil: none.
func (p *Plan) Estimate(jobs *Jobs) {
	p.Jobs = p.ImpactOn(jobs)
	for i := range p.Actions {
		p.Actions[i].Jobs = ImpactOn(p.Actions[i:i+1], jobs)
	}
}

// ImpactOn returns what the plan and the later ones of the same change do to the jobs of a
// snapshot.
func (p *Plan) ImpactOn(jobs *Jobs) *JobImpact {
	return ImpactOn(slices.Concat(p.Actions, p.Later), jobs)
}

// impactTally adds up a JobImpact.
type impactTally struct {
	impact JobImpact
	users  map[*JobSet]map[UserJobs]int // with a count of 0
}

// byRules returns what rules do to a group of jobs, and after how many seconds running ones end: the worst that
// happens to one of their parts.
func (e *effects) byRules(g *JobGroup) (worst fate, deadline int) {
	worst, deadline = e.onPart(g)
	for i := range g.Parts {
		of, after := e.onPart(&g.Parts[i])
		worst = max(worst, of)
		if after > 0 && (deadline == 0 || after < deadline) {
			deadline = after
		}
	}
	return worst, deadline
}

func (e *effects) onPart(g *JobGroup) (worst fate, deadline int) {
	var gone []string // partitions that are removed
	for k := range e.rules {
		r := &e.rules[k]
		switch {
		case r.Leave && g.Pending && meets(r.Nodes, g.Named):
			worst = ends
		case !r.selects(g):
			continue
		case g.Pending && !r.CancelsQueued:
			continue
		case !g.Pending && r.CancelAfter == 0:
			worst = max(worst, waitedFor)
		case !g.Pending:
			if worst = ends; deadline == 0 || r.CancelAfter < deadline {
				deadline = r.CancelAfter
			}
		case !(&JobRule{All: r.All, Users: r.Users, Accounts: r.Accounts, QoS: r.QoS}).selects(g): // by its partitions alone
			worst, gone = max(worst, moves), append(gone, r.Partitions...)
		default:
			worst = ends
		}
	}
	if worst == moves && !slices.ContainsFunc(g.Partitions, func(p string) bool { return !slices.Contains(gone, p) }) {
		worst = ends
	}
	return worst, deadline
}

func (t *impactTally) add(g *JobGroup, e *effects) {
	i := &t.impact
	of, deadline := e.byRules(g)
	if of == continues {
		of = e.later(g)
	}
	if deadline > 0 && !slices.Contains(i.EndAfter, deadline) {
		i.EndAfter = append(i.EndAfter, deadline)
	}
	set := i.set(of, g.Pending)
	set.Count += g.Count
	if of == continues {
		return // nobody asks who they are
	}
	set.IDs = append(set.IDs, g.IDs[:min(len(g.IDs), MaxJobIDs-len(set.IDs))]...)
	if g.unread() && !g.Pending {
		i.Unread = append(i.Unread, g.IDs[:min(len(g.IDs), MaxJobIDs-len(i.Unread))]...)
	}
	if g.User != "" {
		if t.users[set] == nil {
			t.users[set] = map[UserJobs]int{}
		}
		t.users[set][UserJobs{User: g.User, Account: g.Account}] += g.Count
	}
}

func (t *impactTally) result() *JobImpact {
	for set, of := range t.users {
		accounts := map[string]int{}
		for user, n := range of {
			user.Count = n
			set.Users = append(set.Users, user)
			accounts[user.Account] += n
		}
		delete(accounts, "")
		for account, n := range accounts {
			set.Accounts = append(set.Accounts, AccountJobs{account, n})
		}
		slices.SortFunc(set.Accounts, func(a, b AccountJobs) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Account, b.Account))
		})
		set.Accounts = set.Accounts[:min(len(set.Accounts), MaxJobIDs)]
		slices.SortFunc(set.Users, func(a, b UserJobs) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.User, b.User), cmp.Compare(a.Account, b.Account))
		})
		set.More = max(0, len(set.Users)-MaxJobIDs)
		set.Users = set.Users[:len(set.Users)-set.More]
	}
	slices.Sort(t.impact.EndAfter)
	return &t.impact
}

// LostJob is a job that its scheduler does not know any more, although it has no end on record.
type LostJob struct {
	ID   int
	User string // empty: not known
}
