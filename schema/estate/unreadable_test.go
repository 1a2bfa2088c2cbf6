package estate_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/schema"
	"berth/schema/estate"
)

// An unreadable tenant stays in force unchanged, and all other tenants have the
// same result as without its change.
func TestUnreadableTenantStaysInForce(t *testing.T) { unreadableTenantStaysInForce(t) }

func unreadableTenantStaysInForce(t *testing.T) {
	l := newLoader(t)
	all := edits(t)
	base := lab(t)
	const part = "tenants/physics"
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		first, err := l.InForceOf(context.Background(), estate.Files(history(rt, base, all, "")), estate.Files(base), nil)
		require.NoError(rt, err)
		previous := contents(rt, first.Snapshot)
		main := history(rt, previous, all, "")
		n++ // or the loader has read an equal part before
		main[part+"/unknown.md"] = fmt.Sprint(n)
		untouched := maps.Clone(main)
		maps.DeleteFunc(untouched, func(path, _ string) bool { return strings.HasPrefix(path, part+"/") })
		was := maps.Clone(previous)
		maps.DeleteFunc(was, func(path, _ string) bool { return !strings.HasPrefix(path, part+"/") })
		maps.Copy(untouched, was)

		want, err := l.InForceOf(context.Background(), estate.Files(untouched), estate.Files(previous), nil)
		require.NoError(rt, err)
		got, err := l.InForceOf(context.Background(), broken{Snapshot: estate.Files(main), part: part}, estate.Files(previous), nil)
		require.NoError(rt, err)
		require.False(rt, schema.HasErrors(got.Result.Diagnostics))
		require.Equal(rt, contents(rt, want.Snapshot), contents(rt, got.Snapshot))
		require.Equal(rt, []string{part}, got.Main.Unreadable, "the unreadable part is reported")

		i := slices.IndexFunc(got.Held, func(h schema.Held) bool { return h.File == part })
		require.GreaterOrEqual(rt, i, 0)
		require.Equal(rt, schema.HeldUnreadable, got.Held[i].Reason)
		require.Equal(rt, schema.Key{Kind: schema.KindTenant, Name: "physics"}, got.Held[i].Key)
		require.Equal(rt, slices.Concat(want.Held, got.Held[i:i+1]), slices.Concat(got.Held[:i], got.Held[i+1:], got.Held[i:i+1]))
		require.Equal(rt, hash(rt, estate.Files(previous), part), got.Replace[part])
		others := maps.Clone(got.Replace)
		delete(others, part)
		require.Equal(rt, want.Replace, others)
	})
}

// hash returns the hash of a part, or "".
func hash(t require.TestingT, snap schema.Snapshot, part string) string {
	parts, err := snap.Parts(context.Background())
	require.NoError(t, err)
	for _, p := range parts {
		if p.Name == part {
			return p.Hash
		}
	}
	return ""
}

// An unreadable part that was never in force, or that does not belong to the
// estate, counts as missing.
func TestUnreadableNewPartIsIgnored(t *testing.T) {
	for _, part := range []string{"tenants/evil", "tenants/NO\\x2fNAME", "Tenants"} {
		main := broken{Snapshot: estate.Files(with(t,
			map[string]string{part + "/tenant.yaml": "x", trainFile: fmt.Sprintf(instance, "train", 1)})), part: part}
		f, err := newLoader(t).InForceOf(context.Background(), main, estate.Files(lab(t)), nil)
		require.NoError(t, err)
		require.Equal(t, "unreadable "+part+": not there\n", told(f))
		require.Equal(t, map[string]string{part: ""}, f.Replace)
		require.Equal(t, 1, f.Result.Desired.Instance(schema.InstanceKey("physics", "lattice", "train")).Spec.Roles["worker"].Count)
	}
}

// A part that can be read again is read again, although its tree is the same.
func TestPartThatBecomesReadableIsRead(t *testing.T) {
	l := newLoader(t)
	files := estate.Files(lab(t))
	for range 2 {
		first, err := l.Load(t.Context(), broken{Snapshot: files, part: "tenants/physics"})
		require.NoError(t, err)
		require.Equal(t, []string{"tenants/physics"}, first.Unreadable)
	}
	second, err := l.Load(t.Context(), files)
	require.NoError(t, err)
	require.Empty(t, second.Unreadable)
	require.NotNil(t, second.Desired.Instance(schema.InstanceKey("physics", "lattice", "train")))
}

// The replacement of a file outside the estate by a directory of the estate does not count as a change of the estate.
func TestChangesListOnlyFilesOfTheEstate(t *testing.T) {
	const doc = "Platform/roles/operators.yaml"
	changes, err := newLoader(t).Compare(t.Context(), estate.Files(map[string]string{"Platform": "notes\n"}),
		estate.Files(map[string]string{doc: "x\n"}))
	require.NoError(t, err)
	require.Len(t, changes, 1)
	require.Equal(t, doc, changes[0].Path)
}
