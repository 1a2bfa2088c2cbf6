package journal_test

import (
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
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

// file returns options for a journal that flushes nothing.
func file(t *testing.T) journal.Options {
	return journal.Options{Path: filepath.Join(t.TempDir(), "cache", "deliveries"), Sync: func(*os.File) error { return nil }}
}

// take stores a new delivery.
func take(t require.TestingT, j *journal.Journal[string], id string, works ...string) {
	known, err := j.Take(id, works)
	require.NoError(t, err)
	require.False(t, known, id)
}

func all(string) bool { return true }

func only(want ...string) func(string) bool {
	return func(w string) bool { return slices.Contains(want, w) }
}

// A repeated id alone proves nothing: it is not signed.
func TestDuplicateIsKnownOnceItsWorkIsDone(t *testing.T) {
	t.Parallel()
	j := open(t, file(t))
	take(t, j, "a", "estate")
	take(t, j, "a", "estate") // its work is not done
	j.Begin(only("estate"))()
	known, err := j.Take("a", []string{"estate"})
	require.NoError(t, err)
	require.True(t, known)
	take(t, j, "a", "pull 7")
	take(t, j, "b", "estate")
	take(t, j, "", "estate")
	j.Begin(all)()
	take(t, j, "", "estate") // without an id nothing is known
	require.Equal(t, []string{"estate"}, j.Pending())
	require.True(t, j.Knows("a"))
	require.False(t, j.Knows("c"))
}

func TestDeliveryDuringWorkStaysPending(t *testing.T) {
	t.Parallel()
	o := file(t)
	j := open(t, o)
	take(t, j, "a", "estate", "pulls")
	end := j.Begin(only("estate"))
	take(t, j, "b", "estate")
	end()
	require.Equal(t, []string{"pulls", "estate"}, j.Pending())
	j.Begin(only("pulls"))()
	known, err := j.Take("a", []string{"estate", "pulls"})
	require.NoError(t, err)
	require.True(t, known)
	take(t, j, "b", "estate")
	j.Begin(only("estate")) // and never ended
	require.Equal(t, []string{"estate"}, j.Pending())
	// After a crash it is the same.
	again := open(t, o)
	require.Equal(t, []string{"estate"}, again.Pending())
	known, err = again.Take("a", []string{"estate", "pulls"})
	require.NoError(t, err)
	require.True(t, known)
	take(t, again, "b", "estate")
}

func TestFileCutAtAnyByteKeepsWholeLines(t *testing.T) {
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
		require.Len(t, torn.Pending(), whole, "%d bytes", n)
		if n == 0 || text[n-1] == '\n' {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "1 lines are unreadable")
		}
		take(t, torn, "after", "estate")
		require.NoError(t, torn.Close())
		healed := open(t, o)
		require.Len(t, healed.Pending(), whole+1)
		require.NoError(t, healed.Close())
	}
}

// A line that the disk returns damaged is skipped, and never read as another work.
func TestFlippedBitChangesNoWork(t *testing.T) {
	t.Parallel()
	o := file(t)
	j := open(t, o)
	for i := range 3 {
		take(t, j, fmt.Sprint("id-", i), fmt.Sprint("pull ", i))
	}
	all := j.Pending()
	require.NoError(t, j.Close())
	text, err := os.ReadFile(o.Path)
	require.NoError(t, err)
	for at := range text {
		damaged := slices.Clone(text)
		damaged[at] ^= 1 << (at % 8)
		require.NoError(t, os.WriteFile(o.Path, damaged, 0o600))
		j, err := journal.Open[string](o)
		require.ErrorContains(t, err, "unreadable and skipped", "byte %d", at)
		require.Less(t, len(j.Pending()), len(all), "byte %d", at)
		require.Subset(t, all, j.Pending(), "byte %d", at)
		require.NoError(t, j.Close())
	}
}

func TestMalformedLinesAreSkipped(t *testing.T) {
	t.Parallel()
	o := file(t)
	j := open(t, o)
	take(t, j, "a", "estate")
	require.NoError(t, j.Close())
	text, err := os.ReadFile(o.Path)
	require.NoError(t, err)
	summed := func(data string) string {
		return fmt.Sprintf("%08x %s\n", crc32.Checksum([]byte(data), crc32.MakeTable(crc32.Castagnoli)), data)
	}
	junk := []string{"\n", summed("null"), summed("{}"), "\x00\xff\n", summed(`{"n":1,"at":"yesterday"}`), summed(`{"n":-1}`),
		summed(`{"n":9,"at":"2026-01-01T00:00:00Z","works":[7]}`), strings.Repeat("x", 1<<20) + "\n"}
	require.NoError(t, os.WriteFile(o.Path, []byte(strings.Join(junk, "")+string(text)+strings.Repeat("y", 1<<20)), 0o600))
	j, err = journal.Open[string](o)
	require.ErrorContains(t, err, "9 lines are unreadable")
	require.Equal(t, []string{"estate"}, j.Pending())
}

func TestWaitingDeliveriesShareOneFsync(t *testing.T) {
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

func TestTakeReturnsAfterTheFsync(t *testing.T) {
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

// Each Take returns the error of a full or broken disk, until the disk works again.
func TestBrokenDiskIsReportedUntilItWorks(t *testing.T) {
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
	require.ElementsMatch(t, []string{"pull 1", "pull 2"}, j.Pending())
	broken.Store(false)
	take(t, j, "b", "pull 2")
	require.ElementsMatch(t, []string{"pull 1", "pull 2"}, open(t, o).Pending())
}

func TestDeletedDirectoryIsRemade(t *testing.T) {
	t.Parallel()
	o := file(t)
	j := open(t, o)
	take(t, j, "a", "pull 1")
	require.NoError(t, os.RemoveAll(filepath.Dir(o.Path)))
	take(t, j, "b", "pull 2")
	require.ElementsMatch(t, []string{"pull 1", "pull 2"}, open(t, o).Pending())
	// A directory that cannot be made is reported, by Open too.
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
	require.Equal(t, []string{"pull 3"}, open(t, o).Pending())
}

func TestTakeRefusesBeyondTheBound(t *testing.T) {
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

func TestFileAndMemoryStayBounded(t *testing.T) {
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
	undone := j.Pending()
	require.Equal(t, "never done", undone[0])
	require.NoError(t, j.Close())
	again := open(t, o)
	require.Equal(t, undone, again.Pending())
	require.True(t, again.Knows("id-2950"))
	require.False(t, again.Knows("id-100"))
}

func TestWaitingCountsPendingWorks(t *testing.T) {
	t.Parallel()
	o := file(t)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	o.Now = func() time.Time { return now }
	j := open(t, o)
	n, since := j.Waiting(all)
	require.Zero(t, n)
	require.True(t, since.IsZero())
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
	}
}

// modelled is a simple model of a journal.
type modelled struct {
	n      int
	undone map[string]map[int]bool // by work: deliveries; true: told to be kept
	ids    map[string]modelledID
	order  []string // of ids
	ever   map[string]bool
}

type modelledID struct {
	n     int
	works []string
}

func (m *modelled) known(id string, works []string) bool {
	was, ok := m.ids[id]
	return ok && slices.Equal(was.works, works) && !slices.ContainsFunc(works, func(w string) bool {
		_, undone := m.undone[w][was.n]
		return undone
	})
}

func (m *modelled) take(id string, works []string, most int, kept bool) {
	m.n++
	for _, w := range works {
		m.ever[w] = true
		if m.undone[w] == nil {
			m.undone[w] = map[int]bool{}
		}
		m.undone[w][m.n] = kept
	}
	if _, ok := m.ids[id]; !ok {
		if m.order = append(m.order, id); len(m.order) > most {
			delete(m.ids, m.order[0])
			m.order = m.order[1:]
		}
	}
	m.ids[id] = modelledID{m.n, works}
}

// finish records that a work is done for all deliveries up to one.
func (m *modelled) finish(w string, to int) {
	maps.DeleteFunc(m.undone[w], func(n int, _ bool) bool { return n <= to })
	if len(m.undone[w]) == 0 {
		delete(m.undone, w)
	}
}

// works lists the pending works; with kept, only those whose Take returned nil.
func (m *modelled) works(kept bool) []string {
	var out []string
	for w, of := range m.undone {
		if !kept || slices.Contains(slices.Collect(maps.Values(of)), true) {
			out = append(out, w)
		}
	}
	return out
}

// Over random deliveries, work and crashes, the journal agrees with a model: a work
// is pending from its delivery until it is done, and a delivery is known once all
// its works are done. After a crash on a broken disk, every acknowledged work is
// pending, and nothing that was never delivered.
func TestJournalAgreesWithModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		const most = 4
		var broken bool
		o := journal.Options{Path: filepath.Join(dir, fmt.Sprint(runs)), IDs: most, Length: 600, Most: 1000, Sync: func(*os.File) error {
			if broken {
				return errors.New("broken")
			}
			return nil
		}}
		j := open(t, o)
		m := &modelled{undone: map[string]map[int]bool{}, ids: map[string]modelledID{}, ever: map[string]bool{}}
		behind := false // the disk, of what is known
		guessed := false
		works := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		type look struct {
			of  string
			to  int
			end func()
		}
		var looks []look
		t.Repeat(map[string]func(*rapid.T){
			"deliver": func(t *rapid.T) {
				id, ws := rapid.StringMatching("[1-8]").Draw(t, "id"),
					rapid.SliceOfNDistinct(works, 1, 3, func(w string) string { return w }).Draw(t, "works")
				known, err := j.Take(id, ws)
				if guessed { // the set of remembered ids is uncertain; its answers about them are not
					_, since := m.ids[id]
					require.False(t, known && since && !m.known(id, ws), id)
				} else {
					require.Equal(t, m.known(id, ws), known)
				}
				if known {
					require.NoError(t, err)
					return
				}
				require.Equal(t, broken, err != nil)
				behind = broken
				m.take(id, ws, most, err == nil)
			},
			"begin": func(t *rapid.T) {
				w := works.Draw(t, "work")
				looks = append(looks, look{of: w, to: m.n, end: j.Begin(only(w))})
			},
			"end": func(t *rapid.T) {
				if len(looks) == 0 {
					t.Skip("no work was started")
				}
				i := rapid.IntRange(0, len(looks)-1).Draw(t, "which")
				l := looks[i]
				looks = slices.Delete(looks, i, i+1)
				l.end()
				m.finish(l.of, l.to)
				behind = behind || broken
			},
			"disk": func(t *rapid.T) { broken = !broken },
			"crash": func(t *rapid.T) {
				if broken {
					t.Skip("it begins on a disk that works")
				}
				looks = nil
				j = open(t, o)
				if !behind {
					return
				}
				undone := j.Pending()
				require.Subset(t, undone, m.works(true))
				for _, w := range undone {
					require.True(t, m.ever[w], w)
				}
				m.undone = map[string]map[int]bool{}
				for _, w := range undone {
					m.undone[w] = map[int]bool{m.n: true}
				}
				m.ids, m.order = map[string]modelledID{}, nil
				behind, guessed = false, true
			},
			"": func(t *rapid.T) { require.ElementsMatch(t, m.works(false), j.Pending()) },
		})
	})
}

// A new file's name survives a crash only once its directory is flushed.
func TestDirectoriesAreFlushed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	o := journal.Options{Path: filepath.Join(root, "a", "b", "deliveries")}
	var synced []string
	var broken string
	o.Sync = func(f *os.File) error {
		info, err := f.Stat()
		require.NoError(t, err)
		if info.IsDir() {
			_, err := os.Stat(o.Path)
			synced = append(synced, fmt.Sprint(strings.TrimPrefix(f.Name(), root), " ", err == nil))
			if f.Name() == broken {
				return syscall.EIO
			}
		}
		return nil
	}
	j := open(t, o)
	require.Equal(t, []string{" false", "/a false", "/a/b true"}, synced)
	take(t, j, "a", "pull 1")
	require.Len(t, synced, 3, "an append needs no flush of the directory")

	// A directory that could not be flushed is made and flushed again.
	require.NoError(t, os.RemoveAll(filepath.Join(root, "a")))
	synced, broken = nil, filepath.Join(root, "a")
	_, err := j.Take("b", []string{"pull 2"})
	require.ErrorIs(t, err, syscall.EIO)
	synced, broken = nil, ""
	take(t, j, "b", "pull 2")
	require.Equal(t, []string{"/a false", "/a/b true"}, synced)
	// The same with the name of the file.
	require.NoError(t, os.Remove(o.Path))
	broken = filepath.Join(root, "a", "b")
	_, err = j.Take("c", []string{"pull 3"})
	require.ErrorIs(t, err, syscall.EIO)
	synced, broken = nil, ""
	take(t, j, "c", "pull 3")
	require.Equal(t, []string{"/a/b true"}, synced)
	require.ElementsMatch(t, []string{"pull 1", "pull 2", "pull 3"}, open(t, o).Pending())
}

func TestFileIsRewrittenAfterAFailedWrite(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*os.File) error{
		"fsync": func(*os.File) error { return syscall.EIO },
		"the write after it": func(f *os.File) error {
			reader, err := os.Open(f.Name()) // the same file, and nothing can be written through it
			if err != nil {
				return err
			}
			defer reader.Close()
			return syscall.Dup3(int(reader.Fd()), int(f.Fd()), syscall.O_CLOEXEC)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := file(t)
			next := func(*os.File) error { return nil }
			o.Sync = func(f *os.File) error { return next(f) }
			j := open(t, o)
			take(t, j, "a", "pull 1")
			before, err := os.Stat(o.Path)
			require.NoError(t, err)
			held, err := os.Open(o.Path) // keeps its inode number from being reused
			require.NoError(t, err)
			defer held.Close()
			failed := 0
			for i := range 2 {
				next = func(f *os.File) error { next = func(*os.File) error { return nil }; return fail(f) }
				if name != "fsync" && i > 0 {
					next = func(*os.File) error { return nil }
				}
				if _, err := j.Take(fmt.Sprint("b", i), []string{"pull 2"}); err != nil {
					require.ErrorContains(t, err, o.Path)
					failed++
				}
			}
			require.Positive(t, failed)
			take(t, j, "c", "pull 3")
			after, err := os.Stat(o.Path)
			require.NoError(t, err)
			require.False(t, os.SameFile(before, after))
			require.ElementsMatch(t, []string{"pull 1", "pull 2", "pull 3"}, open(t, o).Pending())
		})
	}
}

// If renaming an unreadable file fails, Take stores nothing.
func TestUnreadableFileIsRenamedNotOverwritten(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(path string) error{
		"it cannot be opened": func(path string) error { return os.Symlink(filepath.Base(path), path) },
		"nor be read":         func(path string) error { return os.Symlink("/proc/self/mem", path) },
		"a directory":         func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := file(t)
			require.NoError(t, os.MkdirAll(filepath.Dir(o.Path), 0o700))
			require.NoError(t, make(o.Path))
			was, err := os.Lstat(o.Path)
			require.NoError(t, err)
			j, err := journal.Open[string](o)
			require.ErrorContains(t, err, "unreadable")
			take(t, j, "a", "estate")
			aside, err := filepath.Glob(o.Path + ".unreadable-*")
			require.NoError(t, err)
			require.Len(t, aside, 1)
			is, err := os.Lstat(aside[0])
			require.NoError(t, err)
			require.True(t, os.SameFile(was, is))
			require.Equal(t, []string{"estate"}, open(t, o).Pending())
		})
	}
	o := file(t)
	now := time.Now()
	o.Now = func() time.Time { return now }
	require.NoError(t, os.MkdirAll(o.Path, 0o700))
	inTheWay := o.Path + ".unreadable-" + now.UTC().Format("20060102T150405.000000000Z")
	require.NoError(t, os.WriteFile(inTheWay, nil, 0o600))
	j, err := journal.Open[string](o)
	require.ErrorContains(t, err, "renaming it failed")
	_, err = j.Take("a", []string{"estate"})
	require.ErrorContains(t, err, "renaming it failed")
	require.NoError(t, os.Remove(inTheWay))
	take(t, j, "a", "estate")
	require.DirExists(t, inTheWay)
}

func TestHangingDiskBoundsWaitingDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := file(t)
		var hangs atomic.Bool
		answers := make(chan struct{})
		o.Sync = func(*os.File) error {
			if hangs.Load() {
				<-answers
			}
			return nil
		}
		j := open(t, o)
		hangs.Store(true)
		began := time.Now()
		var full, late, kept atomic.Int32
		var wg sync.WaitGroup
		for i := range 5_000 {
			wg.Go(func() {
				_, err := j.Take(fmt.Sprint(i), []string{"estate"})
				switch {
				case errors.Is(err, journal.ErrFull):
					full.Add(1)
				case err != nil:
					late.Add(1)
				default:
					kept.Add(1)
				}
			})
		}
		synctest.Wait()
		require.Equal(t, int32(5_000-journal.DefaultWaiting), full.Load(), "at once")
		time.Sleep(journal.DefaultPatience + time.Millisecond)
		synctest.Wait()
		require.Equal(t, int32(journal.DefaultWaiting-1), late.Load(), "all but who holds the disk")
		require.Equal(t, journal.DefaultPatience+time.Millisecond, time.Since(began), "on the test's clock")
		hangs.Store(false)
		close(answers)
		wg.Wait()
		require.Equal(t, int32(1), kept.Load())
		take(t, j, "after", "pull 1")
		require.NoError(t, j.Close())
	})
}

func TestMarkSurvivesRestart(t *testing.T) {
	t.Parallel()
	o := file(t)
	o.Length = 300
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	o.Now = func() time.Time { return now }
	j := open(t, o)
	require.True(t, j.Mark().IsZero())
	j.SetMark(now.Add(-time.Hour))
	require.Equal(t, now.Add(-time.Hour), open(t, o).Mark())
	for i := range 50 { // the file is rewritten meanwhile
		take(t, j, fmt.Sprint(i), "estate")
	}
	require.Equal(t, now.Add(-time.Hour), open(t, o).Mark(), "later deliveries do not change the mark")
	j.SetMark(now)
	now = now.Add(-time.Minute) // the clock was wrong
	require.Equal(t, now, j.Mark())
	require.Equal(t, now, open(t, o).Mark())
}

func TestCompleteSinceMovesAsIdsAreDropped(t *testing.T) {
	t.Parallel()
	o := file(t)
	o.IDs = 3
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	o.Now = func() time.Time { return now }
	j := open(t, o)
	for i := range 5 {
		require.Equal(t, i >= 3, !j.CompleteSince().IsZero())
		now = now.Add(time.Minute)
		take(t, j, fmt.Sprint(i), "estate")
	}
	require.Equal(t, now.Add(-2*time.Minute), j.CompleteSince())
	require.Equal(t, now.Add(-2*time.Minute), open(t, o).CompleteSince())
}

func TestConcurrentUse(t *testing.T) {
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
				j.Pending()
				j.Knows("0-1")
				end()
			}
		})
	}
	wg.Wait()
	j.Begin(all)()
	require.Empty(t, j.Pending())
	require.NoError(t, j.Close())
	require.Empty(t, open(t, o).Pending())
}
