package gitrepo_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/schema"
)

// copied is an estate with 300 statuses, in a directory that has a copy of them.
type copied struct {
	*testing.T
	server *gittest.Server
	dir    string
	tip    string
}

func newCopied(t *testing.T) *copied {
	c := &copied{T: t, server: gittest.New(t, estateFiles(), gittest.InProcess), dir: t.TempDir()}
	var b reconciler.StatusBatch
	for i := range 300 {
		b.Units = append(b.Units, copiedUnit(i, plan.PhaseRunning))
	}
	b.Revision.Commit = strings.Repeat("1", 40)
	c.write(b)
	return c
}

func copiedUnit(i int, phase plan.Phase) plan.Status {
	s := unit(fmt.Sprint("t", i%7), "p", fmt.Sprint("i", i), phase)
	s.RuntimeState = []byte(`{"name":"<a & b>"}`)
	return s
}

// open opens the directory as a daemon that starts does.
func (c *copied) open() *gitrepo.Repo {
	c.Helper()
	r := open(c, c.server, func(o *gitrepo.Options) { o.Dir = c.dir })
	fetch(c, r)
	return r
}

func (c *copied) write(b reconciler.StatusBatch) {
	c.Helper()
	r := c.open()
	var err error
	c.tip, err = r.WriteStatus(c.Context(), c.tip, b)
	require.NoError(c, err)
	require.NoError(c, r.Close())
}

// read returns what a daemon that starts reads.
func (c *copied) read() reconciler.StatusTree {
	c.Helper()
	r := c.open()
	got, err := r.ReadStatus(c.Context(), c.server.Tip("berth/status"))
	require.NoError(c, err)
	require.NoError(c, r.Close())
	return got
}

// readFiles returns what a reader without a copy reads.
func (c *copied) readFiles() reconciler.StatusTree {
	c.Helper()
	local, err := gitrepo.OpenLocal(gitrepo.MirrorDir(c.dir))
	require.NoError(c, err)
	got, err := local.ReadStatus(c.Context(), c.server.Tip("berth/status"))
	require.NoError(c, err)
	return got
}

func (c *copied) file() string { return filepath.Join(c.dir, "status-copy") }

// edit changes the copy. With seal the checksum becomes right again.
func (c *copied) edit(seal bool, change func(string) string) {
	c.Helper()
	data, err := os.ReadFile(c.file())
	require.NoError(c, err)
	text := change(string(data))
	if seal {
		text = text[:strings.LastIndexByte(strings.TrimSuffix(text, "\n"), '\n')+1]
		text += fmt.Sprintf("%x\n", sha256.Sum256([]byte(text)))
	}
	require.NoError(c, os.WriteFile(c.file(), []byte(text), 0o600))
}

// mark changes the phase of each unit in the copy, which tells the statuses of the copy from those of the branch.
func (c *copied) mark(seal bool) {
	c.Helper()
	c.edit(seal, func(text string) string { return strings.ReplaceAll(text, `"phase":"running"`, `"phase":"copied"`) })
}

// phases counts units by phase.
func phases(s reconciler.StatusTree) map[plan.Phase]int {
	out := map[plan.Phase]int{}
	for _, st := range s.Units.All() {
		out[st.Phase]++
	}
	return out
}

func requireSameStatus(t require.TestingT, want, got reconciler.StatusTree) {
	units := func(s reconciler.StatusTree) map[schema.Key]*plan.Status { return maps.Collect(s.Units.All()) }
	require.Equal(t, units(want), units(got))
	want.Units, got.Units = unreadyNodes(want), unreadyNodes(got)
	require.Equal(t, want, got)
}

// unreadyNodes returns the Memory of s without units.
func unreadyNodes(s reconciler.StatusTree) plan.Memory {
	m := s.Units
	for key := range s.Units.All() {
		m = m.Without(key)
	}
	return m
}

func TestRestartReadsOnlyStatusesChangedAfterTheCopy(t *testing.T) {
	t.Parallel()
	c := newCopied(t)
	c.write(reconciler.StatusBatch{Units: []plan.Status{copiedUnit(3, plan.PhaseFailed), copiedUnit(4, plan.PhaseFailed)},
		Gone: []schema.Key{copiedUnit(5, "").Key}})
	c.mark(true)
	require.Equal(t, map[plan.Phase]int{"copied": 297, plan.PhaseFailed: 2}, phases(c.read()))
}

func TestCopyIsWrittenAgainAfterAQuarterOfTheStatusesChanged(t *testing.T) {
	t.Parallel()
	c := newCopied(t)
	c.mark(true)
	r := c.open()
	change := func(from, n int, phase plan.Phase) {
		var b reconciler.StatusBatch
		for i := range n {
			b.Units = append(b.Units, copiedUnit(from+i, phase))
		}
		var err error
		c.tip, err = r.WriteStatus(t.Context(), c.tip, b)
		require.NoError(t, err)
		r.Branch.Close() // waits for a copy that is being written
	}
	stopped := func() int {
		data, err := os.ReadFile(c.file())
		require.NoError(t, err)
		return strings.Count(string(data), `"phase":"stopped"`)
	}
	change(300, 255, plan.PhaseStopped)
	require.Zero(t, stopped())
	change(555, 1, plan.PhaseStopped)
	require.Equal(t, 256, stopped())
	change(556, 1444, plan.PhaseStopped) // 2,000 in all; a quarter is 500
	require.Equal(t, 1700, stopped())
	change(0, 300, plan.PhaseStopped)
	change(0, 199, plan.PhaseFailed) // each change counts
	require.Equal(t, 1700, stopped())
	change(0, 1, plan.PhaseStopped)
	require.Equal(t, 1802, stopped())
}

func TestUnusableCopyIsIgnored(t *testing.T) {
	t.Parallel()
	c := newCopied(t)
	whole, err := os.ReadFile(c.file())
	require.NoError(t, err)
	tree := string(whole[bytes.Index(whole, []byte(`"root":"`))+8:])[:40]
	replace := func(old, new string) func(string) string {
		return func(text string) string { return strings.Replace(text, old, new, 1) }
	}
	cases := map[string]struct {
		seal   bool
		change func(string) string
	}{
		"missing":       {change: nil},
		"empty":         {change: func(string) string { return "" }},
		"cut":           {change: func(text string) string { return text[:len(text)/2] }},
		"without end":   {change: func(text string) string { return text[:len(text)-66] }},
		"checksum":      {change: replace(`"attempt":1`, `"attempt":2`)},
		"no JSON":       {true, replace(`{"unit"`, `{unit`)},
		"other build":   {true, replace(`{"build":"`, `{"build":"00`)},
		"other tree":    {true, replace(tree, strings.Repeat("0", 39)+"1")},
		"fewer files":   {true, replace(`"files":300`, `"files":299`)},
		"foreign file":  {change: func(string) string { return "\x00\n" }},
		"negative":      {true, replace(`"files":300`, `"files":-1`)},
		"endless line":  {change: func(text string) string { return strings.Repeat("x", 17<<20) }},
		"head of a map": {true, replace(`"root"`, `"files":[],"root"`)},
	}
	for name, test := range cases {
		require.NoError(t, os.WriteFile(c.file(), whole, 0o600))
		c.mark(true)
		require.Equal(t, map[plan.Phase]int{"copied": 300}, phases(c.read()), "the copy counts")
		if test.change == nil {
			require.NoError(t, os.Remove(c.file()))
		} else {
			c.edit(test.seal, test.change)
		}
		require.Equal(t, map[plan.Phase]int{plan.PhaseRunning: 300}, phases(c.read()), name)
		data, err := os.ReadFile(c.file())
		require.NoError(t, err)
		require.Equal(t, 300, strings.Count(string(data), `"phase":"running"`), "%s: it is written again", name)
	}
}

func TestCopyThatCannotBeWrittenDelaysNoStatus(t *testing.T) {
	t.Parallel()
	c := newCopied(t)
	require.NoError(t, os.Remove(c.file()))
	require.NoError(t, os.Mkdir(c.file(), 0o700))
	var log bytes.Buffer
	r := open(t, c.server, func(o *gitrepo.Options) { o.Dir, o.Log = c.dir, slog.New(slog.NewTextHandler(&log, nil)) })
	got, err := r.ReadStatus(t.Context(), fetch(t, r).Status)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.Equal(t, 300, got.Units.Len())
	require.Equal(t, 1, strings.Count(log.String(), "copy of berth/status not written; the next start reads more statuses"), log.String())
}

// Whatever changes on the branch, and by whom, a restart has what a reader without the copy reads.
func TestRestartFromTheCopyReadsWhatIsOnTheBranch(t *testing.T) {
	t.Parallel()
	c := newCopied(t)
	texts := []string{"", "not: [valid", "apiVersion: berth/v1\nkind: NodeStatus\n"}
	rapid.Check(t, func(rt *rapid.T) {
		change, gone := map[string]string{}, map[string]bool{}
		add := func(path, text string) {
			switch rapid.IntRange(0, 5).Draw(rt, "form") {
			case 0:
				gone[path] = true
				delete(change, path)
			case 1:
				text = rapid.SampledFrom(texts).Draw(rt, "text")
				fallthrough
			default:
				change[path] = text
				delete(gone, path)
			}
		}
		document := func(key schema.Key, v any) {
			path, err := key.StatusPath()
			require.NoError(rt, err)
			data, err := yaml.Marshal(v)
			require.NoError(rt, err)
			add(path, string(data))
		}
		for range rapid.SampledFrom([]int{1, 20, 1000}).Draw(rt, "changes") {
			n := rapid.IntRange(0, 320).Draw(rt, "n")
			switch rapid.IntRange(0, 4).Draw(rt, "kind") {
			case 0, 1:
				s := copiedUnit(n, rapid.SampledFrom([]plan.Phase{plan.PhaseRunning, plan.PhaseFailed}).Draw(rt, "phase"))
				s.APIVersion, s.Kind = schema.APIVersion, "InstanceStatus"
				document(s.Key, s)
			case 2:
				key := schema.Key{Kind: schema.KindNode, Name: fmt.Sprint("n", n)}
				document(key, plan.ThingStatus{APIVersion: schema.APIVersion, Kind: "NodeStatus", Key: key,
					Phase: rapid.SampledFrom([]string{"ready", "lost"}).Draw(rt, "phase"), Detail: []byte(`{"a":"<b>"}`)})
			case 3:
				data, err := yaml.Marshal(plan.Review{APIVersion: schema.APIVersion, Kind: plan.KindReview, Pull: n + 1})
				require.NoError(rt, err)
				add(fmt.Sprintf("pulls/%d.yaml", n+1), string(data))
			case 4:
				add(rapid.SampledFrom([]string{"revision.yaml", "tenants/t1/x.yaml", "pulls/x"}).Draw(rt, "path"), "commit: a\n")
			}
		}
		commit := gittest.Commit{Message: "change", Files: change}
		now, err := c.server.Files("berth/status")
		require.NoError(rt, err)
		for path := range gone {
			if _, ok := now[path]; ok {
				commit.Remove = append(commit.Remove, path)
			}
		}
		_, err = c.server.Commit("berth/status", commit)
		require.NoError(rt, err)
		got := c.read()
		requireSameStatus(rt, c.readFiles(), got)
	})
}
