package schema

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var example = strings.NewReplacer("{tenant}", "t", "{project}", "p", "{parent}", "a", "{name}", "n", "{node}", "n")

// Each place of a kind gives a key, and the key gives the place again.
func TestEveryPlaceOfAKindIsThePathOfItsKey(t *testing.T) {
	require.True(t, slices.IsSortedFunc(kinds, func(a, b KindInfo) int { return strings.Compare(string(a.Kind), string(b.Kind)) }))
	for _, k := range kinds {
		require.NotEmpty(t, k.Places, k.Kind)
		require.LessOrEqual(t, k.Rank, lastRank, k.Kind)
		require.NotNil(t, k.Kind.New(), k.Kind)
		for _, p := range k.Places {
			path := example.Replace(string(p))
			key, ok := KeyAt(path)
			require.True(t, ok, path)
			require.Equal(t, k.Kind, key.Kind, path)
			back, err := key.Path()
			require.NoError(t, err)
			require.Equal(t, path, back)
			_, ok = KeyAt(example.Replace(strings.Replace(string(p), "{", "-{", 1)))
			require.Equal(t, !strings.Contains(string(p), "{"), ok, "an invalid name at %s", p)
		}
		for _, p := range k.Status {
			path := example.Replace(string(p))
			key, ok := StatusKeyAt(path)
			require.True(t, ok, path)
			back, err := key.StatusPath()
			require.NoError(t, err)
			require.Equal(t, path, back)
			_, err = key.Path()
			require.NoError(t, err, "a status is of a document that can be declared")
		}
	}
}

// A Desired returns each document that was put into it, by its key alone.
func TestDesiredHoldsDocumentsOfEveryKind(t *testing.T) {
	for _, k := range kinds {
		for _, p := range k.Places {
			checkHolds(t, example.Replace(string(p)))
		}
	}
}

func checkHolds(t *testing.T, path string) {
	t.Helper()
	key, ok := KeyAt(path)
	require.True(t, ok, path)
	d := &Desired{Platform: &Platform{}, Tenants: map[string]*TenantEstate{}}
	require.Nil(t, d.Document(key), path)
	project := &ProjectEstate{}
	tenant := &TenantEstate{Projects: map[string]*ProjectEstate{"p": project, "n": project}}
	d.Tenants["t"], d.Tenants["n"] = tenant, tenant
	require.Nil(t, d.Document(key), path)
	doc := key.Kind.New()
	doc.Head().Key = key
	switch parts := strings.Split(path, "/"); {
	case parts[0] == "platform":
		d.Platform.Put(doc)
	case strings.Contains(path, "/projects/"):
		project.Put(doc)
	default:
		tenant.Put(doc)
	}
	require.Same(t, doc, d.Document(key), path)
	require.Same(t, doc.Head(), d.Header(key), path)
	key.Name += "x"
	require.Nil(t, d.Document(key), path)
}

// widget is a kind that only this test has.
type widget struct {
	Header
	Spec struct{}
}

// One row makes a kind known: its paths, its status, its documents in a Desired, and
// its words on the command line. Tests of package load check that every row has a CUE
// definition, a JSON Schema and a page in the reference.
func TestOneRowMakesAKindKnown(t *testing.T) {
	all := kinds
	t.Cleanup(func() { kinds = all })
	kinds = append(slices.Clone(all), KindInfo{
		Kind: "Widget", Rank: lastRank, create: document[widget], Permission: "widgets.write",
		Places: places("platform/widgets/{name}.yaml", "tenants/{tenant}/projects/{project}/widgets/{name}.yaml"),
		Status: places("platform/widgets/{name}.yaml"),
	})
	checkHolds(t, "platform/widgets/n.yaml")
	checkHolds(t, "tenants/t/projects/p/widgets/n.yaml")
	key, ok := StatusKeyAt("platform/widgets/n.yaml")
	require.True(t, ok)
	require.Equal(t, Key{Kind: "Widget", Name: "n"}, key)
	kind, ok := ParseKind("widgets")
	require.True(t, ok)
	require.Equal(t, Kind("Widget"), kind)
	require.Contains(t, Kinds(), kind)
}

func TestNoPathOutsideTheTableHasAKey(t *testing.T) {
	for _, path := range []string{"", "platform", "platform/nodes", "platform/nodes/n.yml", "platform/nodes/n.yaml/x",
		"platform/nodes//n.yaml", "tenants/t/projects/p/nodes/n.yaml", "README.md"} {
		_, ok := KeyAt(path)
		require.False(t, ok, path)
	}
	for _, k := range []Key{{}, {Kind: "Thing", Name: "n"}, {Kind: KindNode, Tenant: "t", Name: "n"}, {Kind: KindInstance, Name: "n"}} {
		_, err := k.Path()
		require.Error(t, err)
		_, err = k.StatusPath()
		require.Error(t, err)
	}
	_, err := Key{Kind: KindNode, Name: "../n"}.StatusPath()
	require.Error(t, err)
}

func TestValidName(t *testing.T) {
	for _, s := range []string{"a", "0", "gpu-1", "a--b", strings.Repeat("a", MaxName)} {
		require.True(t, ValidName(s), s)
	}
	for _, s := range []string{"", "-", "a-", "-a", "A", "a_b", "a.b", "a/b", "ä", "a\n", strings.Repeat("a", MaxName+1)} {
		require.False(t, ValidName(s), s)
	}
}

// A node has the name of a host in its cluster, and every other document a narrow one.
func TestNodesHaveTheNamesOfClusters(t *testing.T) {
	for _, name := range []string{"slurm_node1", "gpu01.cs.example.org", "DGX-1", "1", strings.Repeat("a", maxNodeName)} {
		want := Key{Kind: KindNode, Name: name}
		key, ok := KeyAt("platform/nodes/" + name + ".yaml")
		require.True(t, ok, name)
		require.Equal(t, want, key)
		path, err := want.StatusPath()
		require.NoError(t, err)
		require.Equal(t, "nodes/"+name+".yaml", path)
	}
	for _, name := range []string{"", ".", "..", "-a", "a-", "a,b", "n[1-9]", "a=b", "a b", "a\"b", "a\n", "All", "DEFAULT", "none",
		strings.Repeat("a", maxNodeName+1)} {
		_, ok := KeyAt("platform/nodes/" + name + ".yaml")
		require.False(t, ok, name)
	}
	_, ok := KeyAt("tenants/physics/projects/a_b/project.yaml")
	require.False(t, ok)
}

// The deletion rule covers the kinds whose removal ends, drops or widens something, and
// no grant.
func TestGuardedKinds(t *testing.T) {
	var guarded []Kind
	for _, k := range Kinds() {
		if k.GuardsDeletion() {
			guarded = append(guarded, k)
		}
	}
	require.ElementsMatch(t, []Kind{
		KindTenant, KindProject, KindInstance, KindSharedRuntime, KindAttachment,
		KindContribution, KindNode, KindArtifact, KindPolicy,
	}, guarded)
}
