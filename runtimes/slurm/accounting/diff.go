package accounting

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Verb is the verb of a change: add, set or remove.
type Verb int

// The verbs.
const (
	Add Verb = iota
	Set
	Remove
)

// Kind is the kind of the object that a change concerns.
type Kind int

// The kinds. Association is a user's access to one account.
const (
	OfQoS Kind = iota
	OfAccount
	OfUser
	OfAssociation
	OfCoordinator
)

// String returns the noun before the name in a change. Associations and coordinators have names of users.
func (k Kind) String() string {
	return [...]string{OfQoS: "QoS", OfAccount: "account", OfUser: "user", OfAssociation: "user", OfCoordinator: "user"}[k]
}

// Change is one call of sacctmgr.
type Change struct {
	Verb  Verb
	Kind  Kind
	Names []string // of QoS, accounts or users
	// Account is that of associations, of a new user, and of a coordinator.
	Account string
	// Parent is that of a new account.
	Parent string
	// Set are settings, also those with which something is added.
	Set []Assignment
}

// Diff returns the changes that turn have into want, whose associations are for all
// partitions. An
// administrator is demoted first. Nothing is added to what is missing, and nothing is
// removed before all else has its settings and no longer refers to it: slurmdbd 24.11
// breaks if an account is removed before its children.
func Diff(have, want Tree) []Change {
	d := &diff{have: have, want: want}
	d.privileges()
	d.qos()
	d.accounts()
	d.newUsers()
	d.associations()
	d.defaultAccounts()
	d.removals()
	return d.changes
}

// Close returns the change that makes slurmctld refuse new jobs of users, in an account,
// or in all of them if it is empty. Jobs that run or wait go on.
func Close(names []string, account string) Change {
	return Change{Verb: Set, Kind: OfAssociation, Names: names, Account: account,
		Set: []Assignment{{Setting: maxSubmitJobs, To: "0", form: number}}}
}

const maxSubmitJobs = "maxsubmitjobs"

// IsClosed reports whether a user can submit no jobs in an account, or in all of them if
// it is empty.
func (t Tree) IsClosed(name, account string) bool {
	for p, s := range t.Users[name].Associations {
		if (account == "" || p.Account == account) && s[maxSubmitJobs] != "0" {
			return false
		}
	}
	return true
}

// MissingQoS returns the change that adds the QoS that a new cluster lacks, without settings.
func MissingQoS(want Tree) Change {
	c := Change{Verb: Add, Kind: OfQoS}
	for _, name := range slices.Sorted(maps.Keys(want.QoS)) {
		if name != Normal {
			c.Names = append(c.Names, name)
		}
	}
	return c
}

// Withdrawn returns the users who lose the use of a QoS, by its name. It omits QoS that are
// removed.
func Withdrawn(have, want Tree) map[string][]string {
	out := map[string][]string{}
	for _, name := range users(want) {
		if _, known := have.Users[name]; !known {
			continue
		}
		for _, account := range accounts(want.Users[name]) {
			now := want.qosOf(name, account)
			for _, q := range have.qosOf(name, account) {
				if _, stays := want.QoS[q]; stays && len(now) > 0 && !slices.Contains(now, q) && !slices.Contains(out[q], name) {
					out[q] = append(out[q], name)
				}
			}
		}
	}
	return out
}

// qosOf returns the QoS that a user may use in an account; none: unknown.
func (t Tree) qosOf(name, account string) []string {
	return words(cmp.Or(t.Users[name].Associations[Place{Account: account}]["qos"], t.Accounts[account].Settings["qos"]))
}

// Split returns the changes that remove something, apart from the others, which are
// safe while jobs run.
func Split(all []Change) (settle, remove []Change) {
	i := slices.IndexFunc(all, func(c Change) bool { return c.Verb == Remove && c.Kind != OfCoordinator })
	if i < 0 {
		return all, nil
	}
	return all[:i], all[i:]
}

type diff struct {
	have, want Tree
	changes    []Change
}

// add adds a change, or its names to an equal one of the same step, which begins with
// the change of that number.
func (d *diff) add(step int, c Change) {
	for i := step; i < len(d.changes); i++ {
		o := &d.changes[i]
		if o.Verb == c.Verb && o.Kind == c.Kind && o.Account == c.Account && o.Parent == c.Parent && slices.Equal(o.Set, c.Set) {
			o.Names = append(o.Names, c.Names...)
			return
		}
	}
	d.changes = append(d.changes, c)
}

// users returns the names of users without root, sorted.
func users(t Tree) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.Users)), func(name string) bool { return name == Root })
}

// privileges takes away what lets a user change the accounting. Berth gives it to nobody.
func (d *diff) privileges() {
	step := len(d.changes)
	for _, name := range users(d.have) {
		u := d.have.Users[name]
		if u.AdminLevel != None {
			d.add(step, Change{Verb: Set, Kind: OfUser, Names: []string{name},
				Set: []Assignment{{Setting: "adminlevel", From: u.AdminLevel, To: None, form: word}}})
		}
		for _, account := range u.Coordinates {
			d.add(step, Change{Verb: Remove, Kind: OfCoordinator, Names: []string{name}, Account: account})
		}
	}
}

// qos adds all QoS before it sets others: they preempt one another. It first takes away what a QoS
// preempts no more, as slurmdbd refuses a circle.
func (d *diff) qos() {
	names := slices.Sorted(maps.Keys(d.want.QoS))
	have := d.newQoS(names)
	step := len(d.changes)
	gains := slices.ContainsFunc(names, func(name string) bool {
		return slices.ContainsFunc(words(d.want.QoS[name]["preempt"]),
			func(other string) bool { return !slices.Contains(words(have[name]["preempt"]), other) })
	})
	for _, name := range names {
		was, to := have[name]["preempt"], words(d.want.QoS[name]["preempt"])
		keep := slices.DeleteFunc(words(was), func(other string) bool { return !slices.Contains(to, other) })
		if gains && Join(keep...) != was {
			less := maps.Clone(have[name])
			delete(less, "preempt")
			if len(keep) > 0 {
				less["preempt"] = Join(keep...)
			}
			d.add(step, Change{Verb: Set, Kind: OfQoS, Names: []string{name}, Set: compare(qosRules, have[name], less)})
			have[name] = less
		}
	}
	step = len(d.changes)
	for _, name := range names {
		if set := compare(qosRules, have[name], d.want.QoS[name]); len(set) > 0 {
			d.add(step, Change{Verb: Set, Kind: OfQoS, Names: []string{name}, Set: set})
		}
	}
}

// newQoS adds the QoS that are missing: those that preempt none, then those that preempt QoS that
// are there by then, and the rest without what they preempt. It returns all QoS as they are then.
func (d *diff) newQoS(names []string) map[string]Settings {
	have := maps.Clone(d.have.QoS)
	for _, preempts := range []bool{false, true} {
		step := len(d.changes)
		known := maps.Clone(have)
		for _, name := range names {
			want := maps.Clone(d.want.QoS[name])
			if _, ok := known[name]; ok || !preempts && want["preempt"] != "" {
				continue
			}
			for _, other := range words(want["preempt"]) {
				if _, ok := known[other]; !ok {
					delete(want, "preempt")
				}
			}
			d.add(step, Change{Verb: Add, Kind: OfQoS, Names: []string{name}, Set: compare(qosRules, nil, want)})
			have[name] = want
		}
	}
	return have
}

// words returns the words of a list; none of an empty one.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// accounts goes from the root down: the new parent of an account has its place already.
func (d *diff) accounts() {
	for _, name := range d.want.accountsByDepth() {
		want := d.want.Accounts[name]
		have, ok := d.have.Accounts[name]
		if !ok {
			d.changes = append(d.changes, Change{Verb: Add, Kind: OfAccount, Names: []string{name}, Parent: want.Parent,
				Set: compare(associationRules, nil, want.Settings)})
			continue
		}
		var set []Assignment
		if have.Parent != want.Parent {
			set = append(set, Assignment{Setting: "parent", From: have.Parent, To: want.Parent, form: word})
		}
		if set = append(set, compare(associationRules, have.Settings, want.Settings)...); len(set) > 0 {
			d.changes = append(d.changes, Change{Verb: Set, Kind: OfAccount, Names: []string{name}, Set: set})
		}
	}
}

func (d *diff) newUsers() {
	step := len(d.changes)
	for _, name := range users(d.want) {
		if _, ok := d.have.Users[name]; !ok {
			d.add(step, Change{Verb: Add, Kind: OfUser, Names: []string{name}, Account: d.want.Users[name].DefaultAccount})
		}
	}
}

// associations adds and sets those of users. One call has any number of users, and is for
// all partitions: an association with one partition has no settings of its own and gives
// no more access than that with all. slurmdbd 24.11 does not remove the former from a
// user's default account.
func (d *diff) associations() {
	step := len(d.changes)
	for _, name := range users(d.want) {
		want := d.want.Users[name]
		have, known := d.have.Users[name]
		for _, account := range accounts(want) {
			if _, ok := have.Associations[Place{Account: account}]; !ok && (known || account != want.DefaultAccount) {
				d.add(step, Change{Verb: Add, Kind: OfAssociation, Names: []string{name}, Account: account})
			}
		}
	}
	step = len(d.changes)
	for _, name := range users(d.want) {
		want, have := d.want.Users[name], d.have.Users[name]
		for _, account := range accounts(want) {
			for _, s := range have.in(account) {
				if set := compare(associationRules, s, want.Associations[Place{Account: account}]); len(set) > 0 {
					d.add(step, Change{Verb: Set, Kind: OfAssociation, Names: []string{name}, Account: account, Set: set})
				}
			}
		}
	}
}

// places returns where a user has access, in order.
func places(u User) []Place {
	return slices.SortedFunc(maps.Keys(u.Associations), func(a, b Place) int {
		return strings.Compare(a.Account+"\x00"+a.Partition, b.Account+"\x00"+b.Partition)
	})
}

// in returns the settings of a user in an account, first those for all partitions.
func (u User) in(account string) []Settings {
	all := []Settings{u.Associations[Place{Account: account}]}
	for _, p := range places(u) {
		if p.Account == account && p.Partition != "" {
			all = append(all, u.Associations[p])
		}
	}
	return all
}

// accounts returns the accounts of a user, in order.
func accounts(u User) []string {
	var names []string
	for _, p := range places(u) {
		names = append(names, p.Account)
	}
	return slices.Compact(names)
}

func (d *diff) defaultAccounts() {
	step := len(d.changes)
	for _, name := range users(d.want) {
		have, ok := d.have.Users[name]
		if to := d.want.Users[name].DefaultAccount; ok && have.DefaultAccount != to {
			d.add(step, Change{Verb: Set, Kind: OfUser, Names: []string{name},
				Set: []Assignment{{Setting: "defaultaccount", From: have.DefaultAccount, To: to, form: word}}})
		}
	}
}

// removals removes users, then accounts, children first, and then QoS.
func (d *diff) removals() {
	step := len(d.changes)
	for _, name := range users(d.have) {
		want, ok := d.want.Users[name]
		if !ok {
			d.add(step, Change{Verb: Remove, Kind: OfUser, Names: []string{name}})
			continue
		}
		for _, account := range accounts(d.have.Users[name]) {
			if _, ok := want.Associations[Place{Account: account}]; !ok {
				d.add(step, Change{Verb: Remove, Kind: OfAssociation, Names: []string{name}, Account: account})
			}
		}
	}
	gone := d.have.accountsByDepth()
	slices.Reverse(gone)
	for _, name := range gone {
		if _, ok := d.want.Accounts[name]; !ok && name != Root {
			d.changes = append(d.changes, Change{Verb: Remove, Kind: OfAccount, Names: []string{name}})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.have.QoS)) {
		if _, ok := d.want.QoS[name]; !ok && name != Normal {
			d.changes = append(d.changes, Change{Verb: Remove, Kind: OfQoS, Names: []string{name}})
		}
	}
}

// Args returns the arguments of sacctmgr for a cluster. Its exit status says nothing:
// read the tree back.
func (c Change) Args(cluster string) []string {
	names := strings.Join(c.Names, ",")
	entity := [...]string{OfQoS: "qos", OfAccount: "account", OfUser: "user", OfAssociation: "user", OfCoordinator: "coordinator"}[c.Kind]
	args := []string{"-i", [...]string{Add: "add", Set: "modify", Remove: "delete"}[c.Verb], entity}
	if c.Verb == Add {
		args = append(args, names)
	} else {
		args = append(args, "where", "name="+names)
	}
	if c.Account != "" {
		args = append(args, "account="+c.Account)
	}
	// A QoS and the level of an administrator belong to no cluster.
	// An account that is removed from one cluster stays in the list of accounts.
	if c.Kind != OfQoS && c.Kind != OfCoordinator && !c.isLevel() && !(c.Verb == Remove && c.Kind == OfAccount) {
		args = append(args, "cluster="+cluster)
	}
	switch {
	case c.Verb == Add && c.Kind == OfUser:
		args = append(args, "defaultaccount="+c.Account)
	case c.Verb == Add && c.Kind == OfAccount:
		args = append(args, "parent="+c.Parent, "description="+names, "organization=berth")
	case c.Verb == Set:
		args = append(args, "set")
	}
	for _, a := range c.Set {
		args = append(args, a.arg())
	}
	return args
}

func (c Change) isLevel() bool {
	return slices.ContainsFunc(c.Set, func(a Assignment) bool { return a.Setting == "adminlevel" })
}

// String describes the difference and names its owner.
func (c Change) String() string {
	who := c.Kind.String() + " " + names(c.Names)
	if c.Kind == OfAssociation {
		who += " in account " + c.Account
	}
	switch {
	case c.Kind == OfCoordinator:
		return who + ": coordinator of account " + c.Account + ", want none"
	case c.Verb == Add:
		return who + ": missing"
	case c.Verb == Remove:
		return who + ": not declared"
	}
	var words []string
	for _, a := range c.Set {
		words = append(words, a.String())
	}
	return who + ": " + strings.Join(words, "; ")
}

// names lists some names and the number of the others.
func names(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

// Has reports whether anything that a change removes is still there.
func (t Tree) Has(c Change) bool {
	return slices.ContainsFunc(c.Names, func(name string) (ok bool) {
		switch c.Kind {
		case OfQoS:
			_, ok = t.QoS[name]
		case OfAccount:
			_, ok = t.Accounts[name]
		case OfUser:
			_, ok = t.Users[name]
		case OfAssociation:
			ok = slices.Contains(accounts(t.Users[name]), c.Account)
		case OfCoordinator:
			ok = slices.Contains(t.Users[name].Coordinates, c.Account)
		}
		return ok
	})
}
