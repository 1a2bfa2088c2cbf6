package loop_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/loop"
	"berth/schema/estate"
)

// The dates of a document come from the commits that added it to main and that brought
// its current content into force. A new document under an old name has new dates.
func TestDatesComeFromCommits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	day := func(n int) time.Time { return time.Date(2026, 3, n, 12, 0, 0, 0, time.UTC) }
	path, one := instance("train", 1)
	_, two := instance("train", 2)
	at := func(n int, files map[string]string, remove ...string) {
		w.git.MustCommit(t, "main", gittest.Commit{Message: fmt.Sprint("day ", n), When: day(n), Files: files, Remove: remove})
	}
	at(1, map[string]string{path: one})
	// The commit on the branch has another date than its merge.
	at(2, map[string]string{"tenants/physics/README.md": "x\n"})
	w.git.MustCommit(t, "topic", gittest.Commit{Message: "topic", When: day(1), Files: map[string]string{path: two}})
	w.git.MustCommit(t, "main", gittest.Commit{Message: "merge", When: day(3), Merge: w.git.Tip("topic"),
		Files: map[string]string{path: two}})
	d := w.start(func(o *loop.Options) { o.Settings.Dates = true })
	is := func(what, text string, created, updated time.Time) {
		t.Helper()
		w.eventually(what, func() bool {
			v, ok := d.View()
			if !ok {
				return false
			}
			c, u := v.Dates(path, estate.BlobID([]byte(text)))
			return c.Equal(created) && u.Equal(updated)
		})
	}
	is("added on one date, merged on another", two, day(1), day(3))
	is("an older version keeps its date", one, day(1), day(1))
	at(4, map[string]string{path: "what: is this\n"})
	is("a held change does not count", two, day(1), day(3))
	at(5, map[string]string{path: one})
	is("put back", one, day(1), day(5))
	at(6, nil, path)
	at(7, map[string]string{path: two})
	is("new", two, day(7), day(7))

	require.NoError(t, d.stop())
	d = w.start(func(o *loop.Options) { o.Settings.Dates = true })
	is("after a restart", two, day(7), day(7))
}
