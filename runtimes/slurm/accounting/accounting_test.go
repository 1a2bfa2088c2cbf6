package accounting_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/accounting/accountingtest"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

const cluster = "physics_1a2b3c4d"

// listed returns the tree that the queries read from a database.
func listed(t require.TestingT, d *accountingtest.Database) accounting.Tree {
	var rows [][][]string
	for _, q := range accounting.Queries(d.Cluster) {
		one, err := q.Decode(cli.Answer{Stdout: []byte(d.List(q.Args))})
		require.NoError(t, err)
		rows = append(rows, one)
	}
	tree, err := accounting.Read(d.Cluster, rows)
	require.NoError(t, err)
	return tree
}

func some(t *rapid.T, label string, values ...string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(values), 0, len(values), rapid.ID[string]).Draw(t, label)
}

func maybe(t *rapid.T, s accounting.Settings, name accounting.Setting, values ...string) {
	if v := rapid.SampledFrom(append(values, "")).Draw(t, string(name)); v != "" {
		s[name] = v
	}
}

// limits draws the settings of an association. A list of QoS has a default of its own.
func limits(t *rapid.T, qos []string) accounting.Settings {
	s := accounting.Settings{}
	maybe(t, s, "fairshare", "5", "parent")
	maybe(t, s, "maxsubmitjobs", "0", "7")
	maybe(t, s, "grptres", "cpu=4", "cpu=2,gres/gpu=1", "gres/gpu=3")
	maybe(t, s, "maxwalldurationperjob", "30", "6000")
	if list := some(t, "list", qos...); len(list) > 0 {
		s["qos"] = accounting.Join(list...)
		s["defaultqos"] = list[0]
	}
	return s
}

// tree draws the accounting of a cluster. A wanted one has no privileges and partitions.
func tree(t *rapid.T, wanted bool) accounting.Tree {
	all := accounting.NewTree(cluster)
	qos := []string{accounting.Normal}
	for _, name := range some(t, "qos", "high", "low", "long") {
		all.QoS[name] = accounting.Settings{}
		qos = append(qos, name)
	}
	// Each preempts some of those after it in an order: slurmdbd refuses a circle.
	ordered := rapid.Permutation(qos).Draw(t, "order")
	for i, name := range ordered {
		s := all.QoS[name]
		maybe(t, s, "priority", "7", "100")
		maybe(t, s, "maxwall", "90", "3000")
		maybe(t, s, "usagefactor", "0.5", "2")
		maybe(t, s, "gracetime", "30")
		maybe(t, s, "maxtresperuser", "cpu=2,gres/gpu=1", "gres/gpu=2")
		maybe(t, s, "flags", "DenyOnLimit", "DenyOnLimit,NoReserve")
		if rest := ordered[i+1:]; len(rest) == 0 {
			continue
		} else if list := some(t, "preempt", rest...); len(list) > 0 {
			s["preempt"] = accounting.Join(list...)
		}
	}
	root := all.Accounts[accounting.Root]
	root.Settings = limits(t, qos)
	all.Accounts[accounting.Root] = root
	accounts := []string{accounting.Root}
	for _, name := range rapid.Permutation([]string{"members", "red", "blue", "green"}).Draw(t,
		"accounts")[:rapid.IntRange(0, 4).Draw(t, "number")] {
		all.Accounts[name] = accounting.Account{Parent: rapid.SampledFrom(accounts).Draw(t, "parent"), Settings: limits(t, qos)}
		accounts = append(accounts, name)
	}
	for _, name := range some(t, "users", "anna", "ben", "carl", "dora") {
		u := accounting.User{AdminLevel: accounting.None, Associations: map[accounting.Place]accounting.Settings{}}
		for _, a := range rapid.SliceOfNDistinct(rapid.SampledFrom(accounts), 1, len(accounts), rapid.ID[string]).Draw(t, "places") {
			u.DefaultAccount = a
			u.Associations[accounting.Place{Account: a}] = limits(t, qos)
			if !wanted && rapid.Bool().Draw(t, "partition") {
				u.Associations[accounting.Place{Account: a, Partition: "main"}] = limits(t, qos)
			}
		}
		if !wanted {
			u.AdminLevel = rapid.SampledFrom([]string{"None", "Operator", "Administrator"}).Draw(t, "level")
			u.Coordinates = slices.Sorted(slices.Values(some(t, "coordinates", accounts...)))
		}
		all.Users[name] = u
	}
	return all
}

// copyOf returns a tree that shares nothing with t, by way of slurmdbd's lists.
func copyOf(rt require.TestingT, t accounting.Tree) accounting.Tree {
	return listed(rt, &accountingtest.Database{Tree: t})
}

func TestListsAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		x := tree(rt, false)
		require.Equal(rt, fmt.Sprint(x), fmt.Sprint(copyOf(rt, x)))
	})
}

func TestNothingDiffersFromItself(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		x := tree(rt, true)
		require.Empty(rt, accounting.Diff(x, copyOf(rt, x)))
	})
}

// The database refuses what slurmdbd refuses, so every order that it accepts is safe.
func TestChangesMakeTheWantedTree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		have, want := tree(rt, false), tree(rt, true)
		d := &accountingtest.Database{Tree: copyOf(rt, have)}
		removing := false
		for _, c := range accounting.Diff(have, want) {
			require.NoError(rt, d.Run(c.Args(cluster)), "%s", c)
			require.NotEmpty(rt, c.String())
			if c.Kind != accounting.OfCoordinator {
				require.False(rt, removing && c.Verb != accounting.Remove, "%s follows a removal", c)
				removing = c.Verb == accounting.Remove
			}
		}
		after := listed(rt, d)
		require.Empty(rt, accounting.Diff(after, want))
		for name, u := range after.Users { // an association with a partition is like that with all
			for p, s := range u.Associations {
				if p.Partition != "" {
					require.Equal(rt, want.Users[name].Associations[accounting.Place{Account: p.Account}], s)
					delete(u.Associations, p)
				}
			}
		}
		require.Equal(rt, fmt.Sprint(want), fmt.Sprint(after))
	})
}

// No change names another cluster, adds or removes what belongs to Slurm, or makes an
// administrator.
func TestChangesStayWithinTheCluster(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		have, want := tree(rt, false), tree(rt, true)
		delete(want.QoS, accounting.Normal)
		for _, c := range accounting.Diff(have, want) {
			args := c.Args(cluster)
			line := strings.Join(args, " ")
			isGone := c.Verb == accounting.Remove && c.Kind == accounting.OfAccount // of a database that has no other cluster
			if c.Kind != accounting.OfQoS && c.Kind != accounting.OfCoordinator && !isGone && !strings.Contains(line, "adminlevel=None") {
				require.Contains(rt, args, "cluster="+cluster)
			}
			require.NotContains(rt, line, "adminlevel=A")
			require.NotContains(rt, line, "adminlevel=O")
			require.Equal(rt, "-i", args[0])
			isSetting := c.Verb == accounting.Set && c.Kind == accounting.OfAccount
			require.False(rt, slices.Contains(c.Names, accounting.Root) && !isSetting, line)
			require.False(rt, c.Kind == accounting.OfQoS && c.Verb == accounting.Remove && slices.Contains(c.Names, accounting.Normal),
				line)
		}
	})
}

func TestSafeChangesComeBeforeRemovals(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all := accounting.Diff(tree(rt, false), tree(rt, true))
		settle, remove := accounting.Split(all)
		require.Equal(rt, len(all), len(settle)+len(remove))
		for _, c := range settle {
			require.True(rt, c.Verb != accounting.Remove || c.Kind == accounting.OfCoordinator)
		}
		for _, c := range remove {
			require.Equal(rt, accounting.Remove, c.Verb)
		}
	})
}

func TestChangesSayWhatAndWhose(t *testing.T) {
	want := accounting.NewTree(cluster)
	want.Accounts["members"] = accounting.Account{Parent: accounting.Root, Settings: accounting.Settings{}}
	for i := range 7 {
		want.AddUser(fmt.Sprint("u", i), "members", accounting.Settings{})
	}
	want.QoS["high"] = accounting.Settings{"maxtresperuser": "gres/gpu=2", "preempt": "normal"}
	have := copyOf(t, want)
	maps.DeleteFunc(have.Users, func(name string, _ accounting.User) bool { return name != "u0" && name != accounting.Root })
	have.Users["u0"] = accounting.User{DefaultAccount: "members", AdminLevel: "Operator", Coordinates: []string{"members"},
		Associations: map[accounting.Place]accounting.Settings{
			{Account: "members"}:                    {"grptres": "cpu=1,gres/gpu=2", "maxsubmitjobs": "5"},
			{Account: "members", Partition: "main"}: {},
		}}
	have.QoS["high"] = accounting.Settings{"maxtresperuser": "cpu=1", "flags": "DenyOnLimit"}
	have.Accounts["other"] = accounting.Account{Parent: accounting.Root}
	have.Accounts["below"] = accounting.Account{Parent: "other"}
	have.QoS["extra"] = accounting.Settings{}
	var said, calls []string
	for _, c := range accounting.Diff(have, want) {
		said = append(said, c.String())
		calls = append(calls, strings.Join(c.Args(cluster), " "))
	}
	require.Equal(t, []string{
		"user u0: adminlevel is Operator, want None",
		"user u0: coordinator of account members, want none",
		"QoS high: preempt is unset, want normal; flags is DenyOnLimit, want unset; maxtresperuser is cpu=1, want gres/gpu=2",
		"user u1, u2, u3, u4, u5 and 1 more: missing",
		"user u0 in account members: grptres is cpu=1,gres/gpu=2, want unset; maxsubmitjobs is 5, want unset",
		"account below: not declared", "account other: not declared", "QoS extra: not declared",
	}, said)
	require.Equal(t, []string{
		"-i modify user where name=u0 set adminlevel=None",
		"-i delete coordinator where name=u0 account=members",
		"-i modify qos where name=high set preempt=normal flags=-1 maxtresperuser=cpu=-1,gres/gpu=2",
		"-i add user u1,u2,u3,u4,u5,u6 account=members cluster=physics_1a2b3c4d defaultaccount=members",
		"-i modify user where name=u0 account=members cluster=physics_1a2b3c4d set grptres=cpu=-1,gres/gpu=-1 maxsubmitjobs=-1",
		"-i delete account where name=below", "-i delete account where name=other", "-i delete qos where name=extra",
	}, calls)
}

// An answer without the entries that every cluster has is an error, not an empty tree: Diff would
// add everything again.
func TestIncompleteAnswersAreErrors(t *testing.T) {
	full := func() [][][]string {
		d := &accountingtest.Database{Tree: accounting.NewTree(cluster)}
		d.Accounts["members"] = accounting.Account{Parent: accounting.Root, Settings: accounting.Settings{}}
		var rows [][][]string
		for _, q := range accounting.Queries(cluster) {
			one, err := q.Decode(cli.Answer{Stdout: []byte(d.List(q.Args))})
			require.NoError(t, err)
			rows = append(rows, one)
		}
		return rows
	}
	_, err := accounting.Read(cluster, full())
	require.NoError(t, err)
	for name, spoil := range map[string]func([][][]string){
		"no associations":    func(rows [][][]string) { rows[1] = nil },
		"no users":           func(rows [][][]string) { rows[2] = nil },
		"unknown parent":     func(rows [][][]string) { rows[1][0][1] = "lost" },
		"no number":          func(rows [][][]string) { rows[1][0][len(rows[1][0])-5] = "many" },
		"no time":            func(rows [][][]string) { rows[0][0][2] = "soon" },
		"time with no parts": func(rows [][][]string) { rows[0][0][2] = "30" },
	} {
		rows := full()
		spoil(rows)
		_, err := accounting.Read(cluster, rows)
		require.Error(t, err, name)
	}
}

// The helper on the hosts allows each change, and each setting that a change may set.
func TestHelperAllowsEachChange(t *testing.T) {
	allowed := profile.Profile().Programs["sacctmgr"].Check
	rapid.Check(t, func(rt *rapid.T) {
		changes := accounting.Diff(tree(rt, false), tree(rt, true))
		for _, c := range changes {
			require.NoError(rt, allowed(c.Args(cluster)))
		}
	})
	equal := accounting.NewTree(cluster)
	equal.QoS["red"], equal.QoS["blue"] = accounting.Settings{"priority": "7"}, accounting.Settings{"priority": "7"}
	for _, c := range accounting.Diff(accounting.NewTree(cluster), equal) {
		require.NoError(t, allowed(c.Args(cluster)))
	}
	require.NoError(t, allowed(accounting.Close([]string{"anna"}, "").Args(cluster)))
	for _, q := range accounting.Queries(cluster) {
		require.NoError(t, allowed(q.Args))
	}
	want, have := accounting.NewTree(cluster), accounting.NewTree(cluster)
	want.AddUser("anna", accounting.Root, accounting.Settings{})
	have.AddUser("anna", accounting.Root, accounting.Settings{})
	every := func(i int) accounting.Settings { // from the lists' own columns
		s := accounting.Settings{}
		columns := strings.Split(strings.TrimPrefix(last(accounting.Queries(cluster)[i].Args), "format="), ",")
		for _, column := range columns {
			s[accounting.Setting(column)] = "5"
		}
		return s
	}
	have.QoS[accounting.Normal], have.Users["anna"].Associations[accounting.Place{Account: accounting.Root}] = every(0), every(1)
	have.Accounts[accounting.Root] = accounting.Account{Settings: every(1)}
	changes := accounting.Diff(have, want)
	require.Len(t, changes, 3)
	for _, c := range append(changes, accounting.Diff(want, have)...) {
		require.Greater(t, len(c.Set), 15)
		require.NoError(t, allowed(c.Args(cluster)))
	}
}

func last(list []string) string { return list[len(list)-1] }
