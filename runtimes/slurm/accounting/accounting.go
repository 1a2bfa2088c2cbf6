// Package accounting compares the entries of a cluster in slurmdbd with the wanted ones.
//
// A Tree is the accounting of one cluster: its accounts with their parents, its users
// with their associations, and the QoS, each with the settings that differ from Slurm's
// default. Queries asks slurmdbd for a tree, and Diff returns the changes that turn one
// tree into another, in an order that slurmdbd accepts.
//
// The accounting database of a cluster is Berth's own, so whatever is in it and not
// declared is removed. The user root, its account, which is the cluster itself, and the
// QoS normal belong to Slurm: they are never added or removed.
//
// It must not know a host: it gets answers and returns arguments.
package accounting

import (
	"maps"
	"slices"
)

// Names that belong to Slurm.
const (
	Root   = "root"   // the administrator, and the account that has the settings of the cluster
	Normal = "normal" // the QoS of a new cluster
)

// Levels of administrators.
const (
	None          = "None"
	Administrator = "Administrator"
)

// Tree is the accounting of a cluster.
type Tree struct {
	Cluster  string
	QoS      map[string]Settings
	Accounts map[string]Account
	Users    map[string]User
}

// Account is an account of the cluster.
type Account struct {
	Parent   string // empty: this is Root
	Settings Settings
}

// User is a user with the associations that give access to accounts.
type User struct {
	DefaultAccount string
	AdminLevel     string
	Coordinates    []string // accounts that the user may change, sorted
	Associations   map[Place]Settings
}

// Place is where a user has access.
type Place struct {
	Account   string
	Partition string // empty: all
}

// NewTree returns the tree of a cluster as Slurm makes it: root is the only user.
func NewTree(cluster string) Tree {
	return Tree{
		Cluster:  cluster,
		QoS:      map[string]Settings{Normal: {}},
		Accounts: map[string]Account{Root: {Settings: Settings{"qos": Normal}}},
		Users: map[string]User{
			Root: {DefaultAccount: Root, AdminLevel: Administrator, Associations: map[Place]Settings{{Account: Root}: {}}},
		},
	}
}

// AddUser gives a user access to an account. The first one is the default account.
func (t *Tree) AddUser(name, account string, settings Settings) {
	u, ok := t.Users[name]
	if !ok {
		u = User{DefaultAccount: account, AdminLevel: None, Associations: map[Place]Settings{}}
	}
	u.Associations[Place{Account: account}] = settings
	t.Users[name] = u
}

// accountsByDepth returns the names of accounts, parents before children.
func (t Tree) accountsByDepth() []string {
	depth := func(name string) int {
		n := 0
		for name != Root && n <= len(t.Accounts) {
			name, n = t.Accounts[name].Parent, n+1
		}
		return n
	}
	names := slices.Sorted(maps.Keys(t.Accounts))
	slices.SortStableFunc(names, func(a, b string) int { return depth(a) - depth(b) })
	return names
}
