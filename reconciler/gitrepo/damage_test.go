package gitrepo_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
)

// damages are kinds of damage to a mirror on disk.
func damages() map[string]func(t *testing.T, mirror string) {
	put := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, m string) {
			require.NoError(t, os.RemoveAll(filepath.Join(m, name)))
			require.NoError(t, os.WriteFile(filepath.Join(m, name), []byte(text), 0o600))
		}
	}
	return map[string]func(t *testing.T, mirror string){
		"pack gone":         func(t *testing.T, m string) { each(t, m, ".pack", os.Remove) },
		"pack cut":          func(t *testing.T, m string) { each(t, m, ".pack", func(p string) error { return os.Truncate(p, 40) }) },
		"pack bits flipped": func(t *testing.T, m string) { each(t, m, ".pack", turnBits) },
		"index gone":        func(t *testing.T, m string) { each(t, m, ".idx", os.Remove) },
		"ref empty":         func(t *testing.T, m string) { require.NoError(t, os.Truncate(filepath.Join(m, "refs/heads/main"), 0)) },
		"all but HEAD":      func(t *testing.T, m string) { require.NoError(t, os.RemoveAll(filepath.Join(m, "objects"))) },
		"stale lock": func(t *testing.T, m string) {
			require.NoError(t, os.WriteFile(filepath.Join(m, "refs/heads/main.lock"), nil, 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(m, "incoming-1"), []byte("x"), 0o600))
		},
		"everything":               func(t *testing.T, m string) { require.NoError(t, os.RemoveAll(m)) },
		"configuration is garbage": put("config", "[core\n\x00"),
		"HEAD is garbage":          put("HEAD", "\x00\xff"),
		"shallow is garbage":       put("shallow", "\x00\xff\n"),
		"shallow is gone":          func(t *testing.T, m string) { require.NoError(t, os.RemoveAll(filepath.Join(m, "shallow"))) },
		"packed refs are garbage":  put("packed-refs", "\x00 \xff\n"),
		"status names no commit":   put("refs/heads/berth/status", strings.Repeat("ab", 20)+"\n"),
		"status is garbage":        put("refs/heads/berth/status", "\x00\xff"),
		"in-force names no commit": put("refs/heads/berth/in-force", strings.Repeat("ab", 20)+"\n"),
		"main names no commit":     put("refs/heads/main", strings.Repeat("ab", 20)+"\n"),
		"index is garbage":         func(t *testing.T, m string) { each(t, m, ".idx", turnBits) },
		"objects is a file": func(t *testing.T, m string) {
			require.NoError(t, os.RemoveAll(filepath.Join(m, "objects")))
			put("objects", "x")(t, m)
		},
	}
}

func TestDamagedMirrorIsReplaced(t *testing.T) {
	t.Parallel()
	for name, damage := range damages() {
		for _, running := range []bool{true, false} {
			t.Run(name+map[bool]string{true: " while open", false: " while closed"}[running], func(t *testing.T) {
				t.Parallel()
				s := gittest.New(t, estateFiles())
				dir := t.TempDir()
				in := func(o *gitrepo.Options) { o.Dir = dir }
				r := open(t, s, in)
				main := fetch(t, r).Main
				status, err := r.WriteStatus(t.Context(), "", batch(1, main, unit("physics", "lhc", "train", plan.PhaseRunning)))
				require.NoError(t, err)
				mirror := filepath.Join(dir, "mirror.git")
				if !running {
					require.NoError(t, r.Close())
				}
				damage(t, mirror)
				if running {
					r.Forget() // cached objects hide the damage
				} else {
					r = open(t, s, in)
				}
				main = s.MustCommit(t, "main", gittest.Commit{Message: "Next", Files: map[string]string{"platform/x": "y"}})
				// The damage is found at the latest by a read, and the next fetch repairs
				// it.
				var got map[string]string
				for range 3 {
					tips, err := r.Fetch(t.Context())
					require.NoError(t, err)
					require.Equal(t, reconciler.Tips{Main: main, Status: status}, tips)
					if got, err = tryContents(t.Context(), r, main); err != nil {
						continue
					}
					if _, err = r.WriteStatus(t.Context(), status, batch(2, main)); err == nil {
						break
					}
				}
				want := estateFiles()
				want["platform/x"] = "y"
				require.Equal(t, want, got)
				require.NotEqual(t, status, s.Tip("berth/status"))
			})
		}
	}
}

func each(t *testing.T, mirror, suffix string, do func(string) error) {
	found, err := filepath.Glob(filepath.Join(mirror, "objects/pack/*"+suffix))
	require.NoError(t, err)
	require.NotEmpty(t, found)
	for _, p := range found {
		require.NoError(t, os.Chmod(p, 0o600))
		require.NoError(t, do(p))
	}
}

// turnBits damages the middle of every object of a pack, but not its head.
func turnBits(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for i := 20; i < len(b)-20; i += 30 {
		b[i] ^= 0x10
	}
	return os.WriteFile(path, b, 0o600)
}

func tryContents(ctx context.Context, r *gitrepo.Repo, id string) (map[string]string, error) {
	s, err := r.Snapshot(ctx, id)
	if err != nil {
		return nil, err
	}
	parts, err := s.Parts(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, p := range parts {
		files, err := s.Files(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			data, _, err := s.Read(ctx, f, 1<<20)
			if err != nil {
				return nil, err
			}
			out[f.Path] = string(data)
		}
	}
	return out, nil
}

func TestDamageFoundWhileRemoteIsDownKeepsTips(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	dir := t.TempDir()
	r := open(t, s, func(o *gitrepo.Options) { o.Dir = dir })
	main := fetch(t, r).Main
	_, err := r.WriteInForce(t.Context(), "", reconciler.InForce{Commit: main})
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "mirror.git/objects")))
	r = open(t, s, func(o *gitrepo.Options) { o.Dir = dir })
	_, err = tryContents(t.Context(), r, main)
	require.Error(t, err, "an unreadable tree is an error, never an empty tree")
	s.SetFaults(gittest.Faults{Down: true})
	tips, err := r.Fetch(t.Context())
	require.Error(t, err)
	require.Equal(t, main, tips.Main)
	s.SetFaults(gittest.Faults{})

	// The new mirror does not accept a rewritten main.
	other := s.MustCommit(t, "other", gittest.Commit{Message: "x", Files: map[string]string{"a": "b"}})
	unrelated, err := s.Git("-c", "user.name=x", "-c", "user.email=x", "commit-tree", "-m", "x", other+"^{tree}")
	require.NoError(t, err)
	require.NoError(t, s.SetRef("refs/heads/main", unrelated))
	for range 2 {
		tips, err = r.Fetch(t.Context())
		require.ErrorIs(t, err, reconciler.ErrRewritten)
		require.Equal(t, main, tips.Main)
		require.Equal(t, estateFiles(), contents(t, r, main), "the history of in-force keeps its source commits")
	}
	require.NoError(t, s.SetRef("refs/heads/main", main))
	require.Equal(t, main, fetch(t, r).Main)
}

// Damage that only git finds, because Berth reads from its cache, also leads to a
// new mirror. A head that cannot be merged is not damage.
func TestDamageFoundByGitReplacesMirror(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	dir := t.TempDir()
	var log bytes.Buffer
	r := open(t, s, func(o *gitrepo.Options) {
		o.Dir, o.Log = dir, slog.New(slog.NewTextHandler(&log, nil))
	})
	first := fetch(t, r).Main
	second := s.MustCommit(t, "main", gittest.Commit{Message: "Next", Files: map[string]string{"platform/x": "y"}})
	tree, err := s.Git("rev-parse", first+"^{tree}")
	require.NoError(t, err)
	apart, err := s.Git("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org", "commit-tree", "-m", "nobody's child",
		strings.TrimSpace(tree))
	require.NoError(t, err)
	_, err = s.Git("update-ref", "refs/pull/1/head", strings.TrimSpace(apart))
	require.NoError(t, err)
	fetch(t, r)
	stranger, err := r.FetchPull(t.Context(), 1)
	require.NoError(t, err)
	_, _, err = r.Merge(t.Context(), second, stranger)
	require.ErrorContains(t, err, "unrelated histories")
	fetch(t, r)
	require.NotContains(t, log.String(), "damaged")

	each(t, filepath.Join(dir, "mirror.git"), ".pack", turnBits)
	_, _, err = r.Merge(t.Context(), second, first)
	require.Error(t, err)
	require.Contains(t, log.String(), "damaged")
	fetch(t, r)
	_, conflicts, err := r.Merge(t.Context(), second, first)
	require.NoError(t, err)
	require.Empty(t, conflicts)
}
