package estate_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/estate"
)

// claims returns a tenant whose people claim the Unix user shared, as several tenants
// do.
func claims(tenant, login string) map[string]string {
	at := "tenants/" + tenant + "/"
	return map[string]string{
		at + "tenant.yaml": "apiVersion: berth/v1\nkind: Tenant\nmetadata:\n  name: " + tenant + "\nspec:\n  display_name: T\n",
		at + "roles.yaml": "apiVersion: berth/v1\nkind: RoleBinding\nmetadata:\n  name: roles\nspec:\n  members:\n" +
			"    - login: " + login + "\n      role: tenant_owner\n      unix_user:\n        name: shared\n        uid: 30001\n",
	}
}

// Of two tenants that claim one Unix user, the claim in force is valid, for any
// order of names. The finding has both positions; its message names no other
// tenant's file.
func TestConflictIsReportedAtNewClaim(t *testing.T) {
	l := newLoader(t)
	ctx := context.Background()
	for _, new := range []string{"aaa", "zzz"} {
		was := with(t, claims("mmm", "max"))
		now := with(t, claims("mmm", "max"))
		for path, content := range claims(new, "eve") {
			now[path] = content
		}
		held, err := l.Load(ctx, estate.Files(was))
		require.NoError(t, err)
		r, err := l.LoadOver(ctx, estate.Files(now), held)
		require.NoError(t, err)
		require.True(t, r.Contested())
		f := inForce(t, l, now, was)
		for _, ds := range [][]schema.Diagnostic{r.Diagnostics, f.Main.Diagnostics} {
			require.Len(t, ds, 1)
			require.Equal(t, "tenants/"+new+
				"/roles.yaml:7:14: error: spec.members[0].login: the Unix user shared is taken by a user of another tenant: one Unix "+
				"user is one login everywhere [conflict.unix-user]", ds[0].String())
			require.Equal(t, schema.Place{Position: schema.Position{File: "tenants/mmm/roles.yaml", Line: 7, Column: 14},
				Path: "spec.members[0].login"}, ds[0].Other)
			require.Equal(t, "tenants/mmm/roles.yaml:7:14: error: spec.members[0].login: the Unix user shared is taken by a user of "+
				"another tenant: one Unix user is one login everywhere [conflict.unix-user]", ds[0].Swapped().String())
			require.Equal(t, ds[0], ds[0].Swapped().Swapped())
		}
	}
}

// The reason of a held document names only files of its own tenant and of the
// platform.
func TestHeldMessagesNameNoOtherTenant(t *testing.T) {
	l := newLoader(t)
	for _, order := range [][2]string{{"aaa", "zzz"}, {"zzz", "aaa"}} {
		victim, other := "tenants/"+order[0]+"/roles.yaml", "tenants/"+order[1]+"/roles.yaml"
		was := with(t, claims(order[0], "max"))
		now := with(t, claims(order[0], "max"))
		now[victim] += "  nothing: 1\n" // invalid, so that its version in force stays and conflicts
		for path, content := range claims(order[1], "eve") {
			now[path] = content
		}
		f := inForce(t, l, now, was)
		require.Len(t, f.Held, 2)
		for _, h := range f.Held {
			require.NotContains(t, h.Message, order[0]+"/")
			require.NotContains(t, h.Message, order[1]+"/")
			if h.File == other {
				require.Equal(t, "needs a document of another tenant, which does not come into force", h.Message)
			}
		}
	}
}
