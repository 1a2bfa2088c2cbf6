package accounting

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/runtimes/slurm/cli"
)

// Queries ask slurmdbd for the tree of a cluster: the answers are those that Read wants,
// in this order. Settings that an association inherits are left out (wopl).
func Queries(cluster string) []cli.Query[[][]string] {
	return []cli.Query[[][]string]{
		cli.List("qos", nil, append([]string{"name"}, columns(qosRules)...)...),
		cli.List("assoc", []string{"cluster=" + cluster, "wopl"},
			append([]string{"account", "parentname", "user", "partition"}, columns(associationRules)...)...),
		cli.List("user", []string{"withcoord"}, "user", "defaultaccount", "adminlevel", "coord"),
	}
}

// ErrNoCluster: slurmdbd serves, and has no accounting of the cluster.
var ErrNoCluster = errors.New("slurmdbd does not know the cluster")

// Read returns the tree of a cluster from the rows of Queries. An answer without the
// account of root is an error: each cluster that slurmdbd knows has it. Users without an
// association belong to no cluster.
func Read(cluster string, rows [][][]string) (Tree, error) {
	t := Tree{Cluster: cluster, QoS: map[string]Settings{}, Accounts: map[string]Account{}, Users: map[string]User{}}
	for _, row := range rows[0] {
		s, err := settings(qosRules, row[1:])
		if err != nil {
			return t, fmt.Errorf("qos %s: %w", row[0], err)
		}
		t.QoS[row[0]] = s
	}
	if err := t.readAssociations(rows[1]); err != nil {
		return t, err
	}
	for _, row := range rows[2] {
		if u, ok := t.Users[row[0]]; ok {
			u.DefaultAccount, u.AdminLevel = row[1], row[2]
			if row[3] != "" {
				u.Coordinates = slices.Sorted(strings.SplitSeq(row[3], ","))
			}
			t.Users[row[0]] = u
		}
	}
	return t, t.checkRead()
}

// readAssociations adds the accounts and the associations of users.
func (t Tree) readAssociations(rows [][]string) error {
	for _, row := range rows {
		s, err := settings(associationRules, row[4:])
		if err != nil {
			return fmt.Errorf("association of account %s and user %q: %w", row[0], row[2], err)
		}
		if row[2] == "" {
			t.Accounts[row[0]] = Account{Parent: row[1], Settings: s}
			continue
		}
		u := t.Users[row[2]]
		if u.Associations == nil {
			u.Associations = map[Place]Settings{}
		}
		u.Associations[Place{row[0], row[3]}] = s
		t.Users[row[2]] = u
	}
	return nil
}

// checkRead refuses a tree that lacks what slurmdbd has of each cluster.
func (t Tree) checkRead() error {
	if _, ok := t.Accounts[Root]; !ok {
		return fmt.Errorf("%w %s: it has no account %s", ErrNoCluster, t.Cluster, Root)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Accounts)) {
		if parent := t.Accounts[name].Parent; name != Root && t.Accounts[parent].Settings == nil {
			return fmt.Errorf("account %s: slurmdbd has no account %q, its parent", name, parent)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Users)) {
		if t.Users[name].AdminLevel == "" {
			return fmt.Errorf("user %s has an association and is not in the list of users", name)
		}
	}
	return nil
}
