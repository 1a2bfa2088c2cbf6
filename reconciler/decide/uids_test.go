package decide_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/schema/estate"
)

// A pull request that gives a person of an instance in force another uid is refused at the
// line with the next step, and a merge holds the document. A person of no instance, and a
// new name, may have any.
func TestUIDNeverChanges(t *testing.T) {
	const roles = "tenants/physics/projects/lhc/roles.yaml"
	people := func(name string, uid string) string {
		return doc("RoleBinding", "roles",
			"spec:\n  members:\n  - login: ada\n    role: project_admin\n    unix_user:\n      name: "+name+"\n      uid: "+uid+"\n")
	}
	l := loader(t)
	inForce := estateFiles(map[string]string{roles: people("ada", "20001")})
	repo := trees{
		"in-force": inForce,
		"changed":  with(inForce, map[string]string{roles: people("ada", "20002")}),
		"renamed":  with(inForce, map[string]string{roles: people("adah", "20002")}),
	}
	for head, want := range map[string][]string{
		"changed": {"modified RoleBinding physics/lhc", "user.uid-changed " + roles + ":11", "held denied " + roles},
		"renamed": {"modified RoleBinding physics/lhc", "train: configure"},
	} {
		p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(),
			decide.Input{Repo: repo, Base: "in-force", InForce: "in-force", Head: head, Memory: running(t, l, inForce),
				Today: "2026-01-01"})
		require.NoError(t, err)
		got := words(p)
		require.Equal(t, want[1:], got[1:], strings.Join(got, "; "))
		if head == "changed" {
			require.True(t, p.Blocked())
			require.Equal(t, "spec.members[0].unix_user.uid: user ada has uid 20001 in force, and a uid never changes, as files on the "+
				"hosts belong to it: put uid 20001 back, or give the person another user name", p.Diagnostics[0].Message)
		}
		d, err := commit(t, l, estate.Files(repo[head]), estate.Files(inForce))
		require.NoError(t, err)
		require.Equal(t, p.Held, d.Held)
	}

	idle := estateFiles(map[string]string{roles: people("ada", "20001"), train: ""})
	repo = trees{"in-force": idle, "changed": with(idle, map[string]string{roles: people("ada", "20002")})}
	p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(),
		decide.Input{Repo: repo, Base: "in-force", InForce: "in-force", Head: "changed", Memory: running(t, l, idle), Today: "2026-01-01"})
	require.NoError(t, err)
	require.False(t, p.Blocked(), "no instance has the person")
}
