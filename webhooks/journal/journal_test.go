package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/webhooks/journal"
)

func open(t require.TestingT, o journal.Options) *journal.Journal[string] {
	j, err := journal.Open[string](o)
	require.NoError(t, err)
	return j
}

// file is a journal's on a disk that is told nothing to be sure of.
func file(t *testing.T) journal.Options {
	return journal.Options{Path: filepath.Join(t.TempDir(), "cache", "deliveries"), Sync: func(*os.File) error { return nil }}
}

// take takes a delivery that is new.
func take(t require.TestingT, j *journal.Journal[string], id string, works ...string) {
	known, err := j.Take(id, works)
	require.NoError(t, err)
	require.False(t, known, id)
}

func all(string) bool { return true }

func only(want ...string) func(string) bool {
	return func(w string) bool { return slices.Contains(want, w) }
}

// A delivery is a duplicate only if it asks for what it asked for before, and that
// was done: an id alone proves nothing, as it is not signed.
func TestADuplicateIsOneWhoseWorkWasDone(t *testing.T) {
	t.Parallel()
	j := open(t, file(t))
	take(t, j, "a", "estate")
	take(t, j, "a", "estate") // nobody did it yet
	j.Begin(only("estate"))()
	known, err := j.Take("a", []string{"estate"})
	require.NoError(t, err)
	require.True(t, known)
	take(t, j, "a", "pull 7")
	take(t, j, "b", "estate")
	take(t, j, "", "estate")
	j.Begin(all)()
	take(t, j, "", "estate") // without an id nothing is known
	require.Equal(t, []string{"estate"}, j.Undone())
	require.True(t, j.Knows("a"))
	require.False(t, j.Knows("c"))
}

// What is delivered while the work is at it was not seen by who works.
func TestWhatComesWhileItIsDoneIsNotDone(t *testing.T) {
	t.Parallel()
	o := file(t)
	j := open(t, o)
	take(t, j, "a", "estate", "pulls")
	end := j.Begin(only("estate"))
	take(t, j, "b", "estate")
	end()
	require.Equal(t, []string{"pulls", "estate"}, j.Undone())
	j.Begin(only("pulls"))()
	known, err := j.Take("a", []string{"estate", "pulls"})
	require.NoError(t, err)
	require.True(t, known)
	take(t, j, "b", "estate")
	j.Begin(only("estate")) // and never ended
	require.Equal(t, []string{"estate"}, j.Undone())
	// After a crash it is the same.
	again := open(t, o)
	require.Equal(t, []string{"estate"}, again.Undone())
	known, err = again.Take("a", []string{"estate", "pulls"})
	require.NoError(t, err)
	require.True(t, known)
	take(t, again, "b", "estate")
}

// Whatever the file was cut off after, it can be read, and what was told to be
// kept before that is.
func TestTornAnywhere(t *testing.T) {
	t.Parallel()
	o := file(t)
	j := open(t, o)
	var lengths []int
	for i := range 4 {
		take(t, j, fmt.Sprint("id-", i), fmt.Sprint("pull ", i))
		info, err := os.Stat(o.Path)
		require.NoError(t, err)
		lengths = append(lengths, int(info.Size()))
	}
	text, err := os.ReadFile(o.Path)
	require.NoError(t, err)
	o = file(t)
	require.NoError(t, os.MkdirAll(filepath.Dir(o.Path), 0o700))
	for n := range len(text) + 1 {
		require.NoError(t, os.WriteFile(o.Path, text[:n], 0o600))
		torn, err := journal.Open[string](o)
		whole := 0
		for whole < len(lengths) && lengths[whole] <= n {
			whole++
		}
		require.Len(t, torn.Undone(), whole, "%d bytes", n)
		if n == 0 || text[n-1] == '\n' {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "1 lines could not be read")
		}
		take(t, torn, "after", "estate")
		require.NoError(t, torn.Close())
		healed := open(t, o)
		require.Len(t, healed.Undone(), whole+1)
		require.NoError(t, healed.Close())
	}
}

// What stands in the file and is no line of ours is in nobody's way.
func TestHostileFile(t *testing.T) {
	t.Parallel()
	o := file(t)
	j := open(t, o)
	take(t, j, "a", "estate")
	require.NoError(t, j.Close())
	text, err := os.ReadFile(o.Path)
	require.NoError(t, err)
	junk := []string{"\n", "null\n", "{}\n", "\x00\xff\n", `{"n":1,"at":"yesterday"}` + "\n", `{"n":-1}` + "\n", `{"n":9,"at":"2026-01-01T00:00:00Z","works":[7]}` + "\n", strings.Repeat("x", 1<<20) + "\n"}
	require.NoError(t, os.WriteFile(o.Path, []byte(strings.Join(junk, "")+string(text)+strings.Repeat("y", 1<<20)), 0o600))
	j, err = journal.Open[string](o)
	require.ErrorContains(t, err, "9 lines could not be read")
	require.Equal(t, []string{"estate"}, j.Undone())
}

// Deliveries that wait for the disk go there together.
func TestOneFsyncForAllThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := file(t)
		var syncs atomic.Int32
		o.Sync = func(*os.File) error {
			syncs.Add(1)
			time.Sleep(10 * time.Millisecond)
			return nil
		}
		j := open(t, o)
		syncs.Store(0)
		var wg sync.WaitGroup
		var kept atomic.Int32
		for i := range 1000 {
			wg.Go(func() {
				_, err := j.Take(fmt.Sprint(i), []string{"estate"})
				if err == nil {
					kept.Add(1)
				}
			})
		}
		wg.Wait()
		require.Equal(t, int32(1000), kept.Load())
		require.LessOrEqual(t, syncs.Load(), int32(2))
		require.NoError(t, j.Close())
	})
}

// Nothing is told to be kept before the disk has it.
func TestKeptIsOnTheDisk(t *testing.T) {
	t.Parallel()
	o := file(t)
	var onDisk atomic.Pointer[string]
	o.Sync = func(f *os.File) error {
		if text, err := os.ReadFile(o.Path); err == nil {
			s := string(text)
			onDisk.Store(&s)
		}
		return nil
	}
	j := open(t, o)
	for i := range 20 {
		id := fmt.Sprintf("id-%d.", i)
		take(t, j, id, fmt.Sprint("pull ", i%3))
		require.Contains(t, *onDisk.Load(), id)
	}
}

// A disk that is full or broken is told of, each time, and only as long as it is;
// what was not kept is done all the same if it can be.
func TestBrokenDisk(t *testing.T) {
	t.Parallel()
	o := file(t)
	var broken atomic.Bool
	o.Sync = func(*os.File) error {
		if broken.Load() {
			return syscall.EIO
		}
		return nil
	}
	j := open(t, o)
	take(t, j, "a", "pull 1")
	broken.Store(true)
	for range 3 {
		_, err := j.Take("b", []string{"pull 2"})
		require.ErrorIs(t, err, syscall.EIO)
		require.ErrorContains(t, err, o.Path)
	}
	require.ElementsMatch(t, []string{"pull 1", "pull 2"}, j.Undone())
	broken.Store(false)
	take(t, j, "b", "pull 2")
	require.ElementsMatch(t, []string{"pull 1", "pull 2"}, open(t, o).Undone())
}

// The directory is a cache: taken away, it is made again, with all that waits.
func TestDirectoryTakenAway(t *testing.T) {
	t.Parallel()
	o := file(t)
	j := open(t, o)
	take(t, j, "a", "pull 1")
	require.NoError(t, os.RemoveAll(filepath.Dir(o.Path)))
	take(t, j, "b", "pull 2")
	require.ElementsMatch(t, []string{"pull 1", "pull 2"}, open(t, o).Undone())
	// Where it cannot be made, that is told, and Open says so too.
	require.NoError(t, os.RemoveAll(filepath.Dir(o.Path)))
	require.NoError(t, os.WriteFile(filepath.Dir(o.Path), nil, 0o600))
	_, err := j.Take("c", []string{"pull 3"})
	require.Error(t, err)
	late, err := journal.Open[string](o)
	require.Error(t, err)
	_, err = late.Take("c", []string{"pull 3"})
	require.Error(t, err)
	require.NoError(t, os.Remove(filepath.Dir(o.Path)))
	take(t, late, "c", "pull 3")
	require.Equal(t, []string{"pull 3"}, open(t, o).Undone())
}

func TestFull(t *testing.T) {
	t.Parallel()
	o := file(t)
	o.Most = 3
	j := open(t, o)
	take(t, j, "a", "1", "2")
	_, err := j.Take("b", []string{"3", "4"})
	require.ErrorIs(t, err, journal.ErrFull)
	require.False(t, j.Knows("b"), "it is to be delivered again")
	take(t, j, "c", "2", "3")
	take(t, j, "d", "3") // what waits already takes no room
	j.Begin(only("1"))()
	take(t, j, "b", "4")
	_, err = j.Take("e", []string{strings.Repeat("x", 1<<17)})
	require.ErrorIs(t, err, journal.ErrFull)
}

// However much is delivered, the file and what is remembered stay small, and what
// was done and what was not stays true.
func TestBounded(t *testing.T) {
	t.Parallel()
	o := file(t)
	o.IDs, o.Length = 100, 20_000
	o.Sync = func(*os.File) error { return nil }
	j := open(t, o)
	take(t, j, "first", "never done")
	for i := range 3_000 {
		take(t, j, fmt.Sprint("id-", i), fmt.Sprint("pull ", i%50))
		if i%7 == 0 {
			j.Begin(func(w string) bool { return w != "never done" })()
		}
		if i%100 == 0 {
			info, err := os.Stat(o.Path)
			require.NoError(t, err)
			require.Less(t, info.Size(), int64(60_000))
		}
	}
	require.False(t, j.Knows("first"))
	undone := j.Undone()
	require.Equal(t, "never done", undone[0])
	require.NoError(t, j.Close())
	again := open(t, o)
	require.Equal(t, undone, again.Undone())
	require.True(t, again.Knows("id-2950"))
	require.False(t, again.Knows("id-100"))
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	o := file(t)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	o.Now = func() time.Time { return now }
	j := open(t, o)
	n, since := j.Waiting(all)
	require.Zero(t, n)
	require.True(t, since.IsZero())
	require.True(t, j.Last().IsZero())
	begun := now
	take(t, j, "a", "estate")
	now = now.Add(time.Minute)
	take(t, j, "b", "estate", "pulls")
	for _, j := range []*journal.Journal[string]{j, open(t, o)} {
		n, since = j.Waiting(all)
		require.Equal(t, 2, n)
		require.Equal(t, begun, since)
		n, since = j.Waiting(only("pulls"))
		require.Equal(t, 1, n)
		require.Equal(t, now, since)
		require.Equal(t, now, j.Last())
	}
}

// Whatever is delivered, done, and interrupted by crashes: what was told to be
// kept and was not done since waits to be done, and nothing else does but what a
// crash made to be done once more.
func TestModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		var broken bool
		o := journal.Options{Path: filepath.Join(dir, fmt.Sprint(runs)), IDs: 4, Length: 600, Most: 1000, Sync: func(*os.File) error {
			if broken {
				return errors.New("broken")
			}
			return nil
		}}
		j := open(t, o)
		must := map[string]bool{} // was kept, and not done
		may := map[string]bool{}  // besides
		works := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		type look struct {
			of, met string // met: what was delivered while it was looked at
			end     func()
		}
		var looks []*look
		t.Repeat(map[string]func(*rapid.T){
			"deliver": func(t *rapid.T) {
				id, ws := rapid.StringMatching("[1-8]").Draw(t, "id"), rapid.SliceOfNDistinct(works, 1, 3, func(w string) string { return w }).Draw(t, "works")
				known, err := j.Take(id, ws)
				for _, w := range ws {
					switch {
					case known:
						require.False(t, must[w] && !may[w] && len(looks) == 0 && len(j.Undone()) == 0, w)
					case err == nil:
						must[w] = true
					default:
						may[w] = true
					}
					for _, l := range looks {
						if l.of == w && !known {
							l.met = w
						}
					}
				}
			},
			"begin": func(t *rapid.T) {
				w := works.Draw(t, "work")
				looks = append(looks, &look{of: w, end: j.Begin(only(w))})
			},
			"end": func(t *rapid.T) {
				if len(looks) == 0 {
					t.Skip("nothing was begun")
				}
				l := looks[0]
				looks = looks[1:]
				l.end()
				if l.met == "" {
					delete(must, l.of)
				}
				may[l.of] = true // as far as this model can tell
			},
			"disk": func(t *rapid.T) { broken = !broken },
			"crash": func(t *rapid.T) {
				if broken {
					t.Skip("what is on a broken disk nobody knows")
				}
				looks = nil
				var err error
				j, err = journal.Open[string](o)
				require.NoError(t, err)
				for w := range must {
					may[w] = true
				}
			},
			"": func(t *rapid.T) {
				undone := j.Undone()
				for w := range must {
					require.Contains(t, undone, w)
				}
				for _, w := range undone {
					require.True(t, must[w] || may[w], w)
				}
			},
		})
	})
}

func TestConcurrently(t *testing.T) {
	t.Parallel()
	o := file(t)
	o.Length = 50_000
	j := open(t, o)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				if _, err := j.Take(fmt.Sprint(g, "-", i), []string{fmt.Sprint(i % 10)}); err != nil {
					t.Error(err)
				}
				end := j.Begin(only(fmt.Sprint(i % 10)))
				j.Undone()
				j.Knows("0-1")
				end()
			}
		})
	}
	wg.Wait()
	j.Begin(all)()
	require.Empty(t, j.Undone())
	require.NoError(t, j.Close())
	require.Empty(t, open(t, o).Undone())
}
