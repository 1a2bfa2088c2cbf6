package estate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/estate"
)

// crowd is a snapshot in which a tenant has additional documents, created when read.
type crowd struct {
	schema.Snapshot
	part     string
	count    int
	document func(i int) string
	reads    *atomic.Int64 // bytes
}

func (c crowd) Parts(ctx context.Context) ([]schema.Part, error) {
	parts, err := c.Snapshot.Parts(ctx)
	parts = slices.Clone(parts)
	for i := range parts {
		if parts[i].Name == c.part {
			parts[i].Hash += fmt.Sprint("+", c.count)
		}
	}
	return parts, err
}

func (c crowd) Files(ctx context.Context, p schema.Part) ([]schema.File, error) {
	files, err := c.Snapshot.Files(ctx, p)
	if p.Name != c.part {
		return files, err
	}
	files = slices.Clone(files)
	for i := range c.count {
		files = append(files, schema.File{Path: fmt.Sprintf("%s/projects/lattice/artifacts/a%05d.yaml", c.part, i), Mode: schema.ModePlain,
			Blob: fmt.Sprintf("%040x", i+1)})
	}
	slices.SortFunc(files, func(a, b schema.File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

func (c crowd) Read(ctx context.Context, f schema.File, most int) (data []byte, more bool, err error) {
	var i int
	if _, scan := fmt.Sscanf(f.Path, c.part+"/projects/lattice/artifacts/a%d.yaml", &i); scan == nil {
		data = []byte(c.document(i))
	} else if data, more, err = c.Snapshot.Read(ctx, f, most); err != nil {
		return nil, false, err
	}
	c.reads.Add(int64(len(data)))
	return data, more, nil
}

// artifact returns a valid document of about size bytes.
func artifact(i, size int) string {
	name := fmt.Sprintf("a%05d", i)
	text := "apiVersion: berth/v1\nkind: Artifact\nmetadata: {name: " + name + "}\nspec: {app: slurm, source: hub, reference: a/" + name +
		", media_type: a/b}\n"
	return text + strings.Repeat("#", max(0, size-len(text)))
}

// without returns the result for everybody but one tenant.
func without(t testing.TB, r *estate.Result, tenant string) string {
	d := *r.Desired
	d.Tenants = maps.Clone(d.Tenants)
	delete(d.Tenants, tenant)
	of := func(path string) bool {
		return path == "tenants/"+tenant || strings.HasPrefix(path, "tenants/"+tenant+"/")
	}
	found := slices.DeleteFunc(append([]schema.Diagnostic{}, r.Diagnostics...), func(d schema.Diagnostic) bool { return of(d.File) })
	needs := maps.Clone(r.Needs)
	maps.DeleteFunc(needs, func(path string, _ []string) bool { return of(path) })
	data, err := json.Marshal([]any{d, found, needs})
	require.NoError(t, err)
	return string(data)
}

// Ten thousand documents of 60 KiB in one tenant are read only up to the bound,
// and only once. Other tenants are not affected.
func TestTooLargeTenantAffectsNoOther(t *testing.T) {
	ctx := context.Background()
	base := estate.Files(lab(t))
	l := newLoader(t)
	want, err := l.Load(ctx, base)
	require.NoError(t, err)
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()

	main := crowd{base, "tenants/physics", 10_000, func(i int) string { return artifact(i, 60<<10) }, new(atomic.Int64)}
	got, err := l.Load(ctx, main)
	require.NoError(t, err)
	require.Less(t, main.reads.Load(), int64(9<<20), "it is known when it is read, and nothing after")
	require.Less(t, heap()-before, 32<<20)
	require.Equal(t, []string{"tenants/physics"}, got.Unreadable)
	files := 10_000 + strings.Count(strings.Join(sorted(lab(t)), "\n"), "tenants/physics/")
	require.Equal(t, fmt.Sprintf("tenants/physics:1:1: error: holds %d files of more than 8 MiB together, which is what may stand here: "+
		"nothing of it is read, and what was in force stays; remove what is not needed [part.too-large]\n", files), render(got))
	require.True(t, without(t, want, "physics") == without(t, got, "physics"))

	read := main.reads.Load()
	force, err := l.InForceOf(ctx, main, base, nil)
	require.NoError(t, err)
	require.Equal(t, read, main.reads.Load(), "what is known costs nothing again")
	require.Len(t, force.Held, 1)
	require.Equal(t, schema.HeldUnreadable, force.Held[0].Reason)
	require.True(t, maps.Equal(contents(t, base), contents(t, force.Snapshot)))
}

// A tenant with too many small files is not read at all.
func TestTenantOfTooManyFilesIsNotRead(t *testing.T) {
	main := crowd{estate.Files(lab(t)), "tenants/physics", 20_000, func(i int) string { return artifact(i, 0) }, new(atomic.Int64)}
	l := newLoader(t)
	got, err := l.Load(context.Background(), main)
	require.NoError(t, err)
	require.Regexp(t, `^tenants/physics:1:1: error: holds 200[0-9]{2} files, more than the 20000 that may stand here: .* \[part.too-large\]\n$`, render(got))
	require.Less(t, main.reads.Load(), int64(1<<20))
	require.NotNil(t, got.Desired.Instance(schema.InstanceKey("biology", "genomes", "assembly")))
}

// Files in force that cannot be deleted and new files may exceed the bound
// together. The new files are then held, and no other tenant is affected.
func TestHeldFilesCountTowardsBound(t *testing.T) {
	ctx := context.Background()
	l := newLoader(t)
	const of = "tenants/biology/tenant.yaml"
	big := func(prefix, label string) map[string]string {
		files := lab(t)
		for i := range 80 {
			name := fmt.Sprintf("%s%02d", prefix, i)
			files["tenants/physics/projects/lattice/instances/"+name+".yaml"] = strings.NewReplacer("name: train", "name: "+name, "-train",
				"-"+name).Replace(files[trainFile]) + strings.Repeat("#", 60<<10)
		}
		files[of] = strings.Replace(files[of], "display_name: ", "display_name: "+label+" ", 1)
		return files
	}
	previous, main := big("a", "Old"), big("b", "New")
	vetoes := map[string]estate.Veto{}
	for path := range previous {
		if _, ok := main[path]; !ok {
			vetoes[path] = estate.Veto{Reason: schema.HeldDenied, Message: "stays"}
		}
	}
	require.Len(t, vetoes, 80)
	force, err := l.InForceOf(ctx, estate.Files(main), estate.Files(previous), vetoes)
	require.NoError(t, err)
	require.Len(t, force.Held, 160)
	now := contents(t, force.Snapshot)
	require.Equal(t, main[of], now[of])
	now[of] = previous[of]
	require.True(t, maps.Equal(previous, now))
}
