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

// with is lab with files replaced; "" removes one.
func with(t testing.TB, over map[string]string) map[string]string {
	files := lab(t)
	for path, content := range over {
		if content == "" {
			delete(files, path)
		} else {
			files[path] = content
		}
	}
	return files
}

func inForce(t testing.TB, l *estate.Loader, main, previous map[string]string, checks ...estate.Check) *estate.Force {
	t.Helper()
	var before schema.Snapshot
	if previous != nil {
		before = estate.Files(previous)
	}
	f, err := l.InForceOf(context.Background(), estate.Files(main), before, nil, checks...)
	require.NoError(t, err)
	return f
}

// told summarises a Force.
func told(f *estate.Force) string {
	var b strings.Builder
	for _, h := range f.Held {
		what := "as before"
		if f.Replace[h.File] == "" {
			what = "not there"
		}
		fmt.Fprintf(&b, "%s %s: %s\n", h.Reason, h.File, what)
	}
	return b.String()
}

const (
	physics  = "tenants/physics/"
	lattice  = physics + "projects/lattice/"
	genomes  = "tenants/biology/projects/genomes/"
	app      = "platform/catalog/slurm/app.yaml"
	version  = "platform/catalog/slurm/22-05.yaml"
	instance = "apiVersion: berth/v1\nkind: Instance\nmetadata: {name: %s}\nspec: {app: slurm, version: 22-05, display_name: x, roles: " +
		"{worker: {count: %d}}}\n"
)

func TestInForce(t *testing.T) {
	bad := "apiVersion: berth/v1\n"
	binding := func(name string, uid int) string {
		return fmt.Sprintf("apiVersion: berth/v1\nkind: RoleBinding\nmetadata: {name: roles}\nspec: {members: [{login: a, role: "+
			"project_member, unix_user: {name: %s, uid: %d}}]}\n", name, uid)
	}
	for name, tc := range map[string]struct {
		before, after map[string]string // over the lab; nil before: nothing in force
		fresh         bool
		want          string
	}{
		"a valid change comes through": {
			after: map[string]string{lattice + "instances/new.yaml": fmt.Sprintf(instance, "new", 1)}},
		"a valid deletion comes through": {
			after: map[string]string{trainFile: ""}},
		"an invalid changed file keeps its version in force": {
			after: map[string]string{trainFile: bad},
			want:  "invalid " + trainFile + ": as before\n"},
		"a new file that is wrong is not there": {
			after: map[string]string{lattice + "instances/new.yaml": bad},
			want:  "invalid " + lattice + "instances/new.yaml: not there\n"},
		"at first there is nothing to fall back to": {
			fresh: true,
			after: map[string]string{trainFile: bad},
			want:  "invalid " + trainFile + ": not there\n"},
		"a document that needs an invalid new file is held too": {
			after: map[string]string{
				physics + "projects/new/project.yaml":            bad,
				physics + "projects/new/entitlements/slurm.yaml": lab(t)[lattice+"entitlements/slurm.yaml"],
				physics + "projects/new/instances/train.yaml":    lab(t)[trainFile]},
			want: "needs " + physics + "projects/new/entitlements/slurm.yaml: not there\n" +
				"needs " + physics + "projects/new/instances/train.yaml: not there\n" +
				"invalid " + physics + "projects/new/project.yaml: not there\n"},
		"a document that needs an invalid changed file is not held": {
			after: map[string]string{app: bad, trainFile: fmt.Sprintf(instance, "train", 2)},
			want:  "invalid " + app + ": as before\n"},
		"a deleted file that something in force needs is put back": {
			after: map[string]string{version: ""},
			want:  "needs " + version + ": as before\n"},
		"a deleted project with its documents left": {
			after: map[string]string{lattice + "project.yaml": ""},
			want:  "needs " + lattice + "project.yaml: as before\n"},
		"a new document does not veto a deletion": {
			before: map[string]string{trainFile: "", genomes + "instances/assembly.yaml": ""},
			after:  map[string]string{version: "", genomes + "instances/assembly.yaml": "", trainFile: fmt.Sprintf(instance, "train", 1)},
			want:   "invalid " + trainFile + ": not there\n"},
		"a version that contradicts an instance in force": {
			after: map[string]string{version: strings.Replace(lab(t)[version], "min: 0", "min: 2", 1)},
			want:  "needs " + version + ": as before\n"},
		"a tenant's claim goes before a newer one that sorts first": {
			before: map[string]string{lattice + "roles.yaml": binding("anna", 20001)},
			after:  map[string]string{lattice + "roles.yaml": binding("anna", 20001), genomes + "roles.yaml": binding("anna", 20099)},
			want:   "invalid " + genomes + "roles.yaml: as before\n"},
		"a Unix user in force is nobody else's": {
			before: map[string]string{lattice + "roles.yaml": members("anna anna 20001")},
			after: map[string]string{lattice + "roles.yaml": members("anna anna 20001"),
				genomes + "roles.yaml": members("mallory anna 20001")},
			want: "invalid " + genomes + "roles.yaml: as before\n"},
		"a Unix user changes hands where they are": {
			before: map[string]string{lattice + "roles.yaml": members("anna anna 20001")},
			after:  map[string]string{lattice + "roles.yaml": members("anna-new anna 20001")}},
		"a claim moves when everybody moves it": {
			before: map[string]string{lattice + "roles.yaml": binding("anna", 20001), genomes + "roles.yaml": binding("anna", 20001)},
			after:  map[string]string{lattice + "roles.yaml": binding("anna", 20005), genomes + "roles.yaml": binding("anna", 20005)}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoader(t)
			previous := with(t, tc.before)
			if tc.fresh {
				previous = nil
			}
			f := inForce(t, l, with(t, tc.after), previous)
			require.Equal(t, tc.want, told(f))
		})
	}
}

// The tree in force is readable: it has main's files, and the earlier files at
// reverted paths.
func TestTreeInForceIsReadable(t *testing.T) {
	old := lab(t)
	main := with(t, map[string]string{
		trainFile: "a: 1\n", app: "", "platform/nodes/dev-gpu-1.yaml": "x\n", "tenants/new/tenant.yaml": "x\n",
		physics + "roles.yaml": strings.Replace(old[physics+"roles.yaml"], "petra", "paula", 1)})
	f := inForce(t, newLoader(t), main, old)
	want := apply(t, main, old, f)
	require.Equal(t, with(t, map[string]string{physics + "roles.yaml": main[physics+"roles.yaml"]}), want)
	require.Equal(t, want, contents(t, f.Snapshot))
}

// contents reads a whole snapshot.
func contents(t require.TestingT, snap schema.Snapshot) map[string]string {
	got := map[string]string{}
	parts, err := snap.Parts(context.Background())
	require.NoError(t, err)
	for _, p := range parts {
		files, err := snap.Files(context.Background(), p)
		require.NoError(t, err)
		for _, file := range files {
			data, more, err := snap.Read(context.Background(), file, 1<<20)
			require.NoError(t, err)
			require.False(t, more)
			require.Equal(t, estate.BlobID(data), file.Blob)
			got[file.Path] = string(data)
		}
	}
	return got
}

// An empty tree is refused, and so are an unreadable platform and an unreadable
// part in force.
func TestMistakesDeleteNothing(t *testing.T) {
	l := newLoader(t)
	ctx := context.Background()
	_, err := l.InForceOf(ctx, estate.Files(map[string]string{"README.md": "x"}), estate.Files(lab(t)), nil)
	require.ErrorIs(t, err, estate.ErrEmpty)
	_, err = l.InForceOf(ctx, estate.Files(nil), nil, nil)
	require.NoError(t, err, "an empty estate without a predecessor is valid")
	for _, part := range []string{"platform", "tenants/physics"} {
		other := broken{Snapshot: estate.Files(with(t, map[string]string{part + "/x.md": "x"})), part: part}
		_, err = l.InForceOf(ctx, estate.Files(lab(t)), other, nil)
		require.ErrorIs(t, err, estate.ErrUnreadable)
		if part == "platform" {
			_, err = l.InForceOf(ctx, other, estate.Files(lab(t)), nil)
			require.ErrorIs(t, err, estate.ErrUnreadable)
		}
	}

	// The version in force has become invalid, as after an upgrade with stricter
	// definitions: a person must decide.
	was := with(t, map[string]string{trainFile: "a: 1\n"})
	_, err = l.InForceOf(ctx, estate.Files(was), estate.Files(was), nil)
	require.ErrorIs(t, err, estate.ErrInForce)
	require.Contains(t, err.Error(), trainFile)
	f := inForce(t, l, lab(t), was)
	require.Empty(t, f.Held, "main mends it")
}

// A check refuses changed documents and keeps those in force.
func TestChecksHoldOnlyChanges(t *testing.T) {
	l := newLoader(t)
	check := func(d *schema.Desired) (ds []schema.Diagnostic) {
		for _, tenant := range d.Tenants {
			for _, p := range tenant.Projects {
				for _, i := range p.Instances {
					if i.Spec.Roles["worker"].Count > 1 {
						ds = append(ds, schema.Diagnostic{Severity: schema.SeverityError, File: i.File, Message: "too many"})
					}
				}
			}
		}
		return ds
	}
	f := inForce(t, l, with(t, map[string]string{
		trainFile:                    fmt.Sprintf(instance, "train", 2),
		lattice + "instances/b.yaml": fmt.Sprintf(instance, "b", 2),
	}), lab(t), check)
	require.Equal(t, "denied "+lattice+"instances/b.yaml: not there\ndenied "+trainFile+": as before\n", told(f))

	wide := with(t, map[string]string{trainFile: fmt.Sprintf(instance, "train", 2)})
	require.Empty(t, inForce(t, l, wide, wide, check).Held)
}

// edits has the possible edits of each file of an estate.
func edits(t *testing.T) map[string][]string {
	files := lab(t)
	all := map[string][]string{}
	for path, content := range files {
		all[path] = []string{"", "a: [\n", strings.Replace(content, "spec:", "sepc:", 1)}
	}
	for _, project := range []string{lattice, genomes} {
		for _, name := range []string{"a", "b"} {
			all[project+"instances/"+name+".yaml"] = []string{"", fmt.Sprintf(instance, name, 1), fmt.Sprintf(instance, name, 99), "x\n"}
		}
	}
	all[trainFile] = append(all[trainFile], fmt.Sprintf(instance, "train", 3), strings.Replace(files[trainFile], "22-05", "23-11", 1))
	all[version] = append(all[version], strings.Replace(files[version], "max: 16", "max: 1", 1),
		strings.Replace(files[version], "worker:", "compute:", 1))
	all["platform/catalog/slurm/23-11.yaml"] = []string{"",
		strings.NewReplacer("name: 22-05", "name: 23-11", "22.05.8", "23.11.4").Replace(files[version])}
	return all
}

// history draws a valid estate and an edited tree of it.
func history(t *rapid.T, files map[string]string, all map[string][]string, only string) map[string]string {
	out := maps.Clone(files)
	var paths []string
	for _, p := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(p, only) {
			paths = append(paths, p)
		}
	}
	for _, path := range rapid.SliceOfN(rapid.SampledFrom(paths), 0, 6).Draw(t, "paths") {
		content := rapid.SampledFrom(all[path]).Draw(t, path)
		if content == "" {
			delete(out, path)
		} else {
			out[path] = content
		}
	}
	return out
}

// For any push, the result in force has no errors. It consists of files of main or
// of the tree before, is a fixed point, and is repeatable.
func TestInForceProperties(t *testing.T) {
	inForceProperties(t, lab(t), edits(t))
}

func inForceProperties(t *testing.T, base map[string]string, all map[string][]string) {
	l := newLoader(t)
	rapid.Check(t, func(rt *rapid.T) {
		previous := base
		for range rapid.IntRange(1, 3).Draw(rt, "commits") {
			main := history(rt, previous, all, "")
			if len(main) == 0 {
				return
			}
			f, err := l.InForceOf(context.Background(), estate.Files(main), estate.Files(previous), nil)
			require.NoError(rt, err)
			require.False(rt, schema.HasErrors(f.Result.Diagnostics), "%v", f.Result.Diagnostics)
			require.Empty(rt, f.Result.Needs)
			now := apply(rt, main, previous, f)
			again, err := l.InForceOf(context.Background(), estate.Files(main), estate.Files(previous), nil)
			require.NoError(rt, err)
			require.Equal(rt, f.Held, again.Held)
			require.Equal(rt, f.Replace, again.Replace)
			r, err := l.Load(context.Background(), estate.Files(now))
			require.NoError(rt, err)
			require.Equal(rt, render(f.Result), render(r), "Replace is what Snapshot shows")
			if mainResult, err := l.Load(context.Background(), estate.Files(main)); err == nil &&
				!schema.HasErrors(mainResult.Diagnostics) {
				require.Empty(rt, f.Replace, "a valid tree comes through unchanged")
			}
			require.Len(rt, f.Held, len(f.Replace))
			previous = now
		}
	})
}

// apply makes the tree that Replace describes.
func apply(t require.TestingT, main, previous map[string]string, f *estate.Force) map[string]string {
	now := maps.Clone(main)
	for path, blob := range f.Replace {
		if blob == "" {
			delete(now, path)
			continue
		}
		require.Equal(t, blob, estate.BlobID([]byte(previous[path])))
		now[path] = previous[path]
	}
	return now
}

// A tenant's documents never change the result in force for another.
func TestTenantsDoNotDisturbEachOther(t *testing.T) {
	tenantsDoNotDisturbEachOther(t, lab(t), edits(t))
}

func tenantsDoNotDisturbEachOther(t *testing.T, base map[string]string, all map[string][]string) {
	l := newLoader(t)
	rapid.Check(t, func(rt *rapid.T) {
		// The same change, with and without further changes in physics.
		without := history(rt, history(rt, base, all, "platform/"), all, "tenants/biology/")
		both := history(rt, without, all, "tenants/physics/")
		biology := func(main map[string]string) map[string]string {
			f, err := l.InForceOf(context.Background(), estate.Files(main), estate.Files(base), nil)
			require.NoError(rt, err)
			now := apply(rt, main, base, f)
			maps.DeleteFunc(now, func(path, _ string) bool { return !strings.HasPrefix(path, "tenants/biology/") })
			return now
		}
		require.Equal(rt, biology(without), biology(both))
	})
}
