package decide_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/schema"
	"berth/schema/estate"
)

// version returns a version of the app batch, with or without upgrade_from.
func version(n int, upgradeFrom string) string {
	v := strings.NewReplacer("name: v1", fmt.Sprintf("name: v%d", n), `version: "1"`,
		fmt.Sprintf(`version: "%d"`, n)).Replace(estateFiles(nil)["platform/catalog/batch/v1.yaml"])
	if upgradeFrom != "" {
		v += "    upgrade_from: [" + upgradeFrom + "]\n"
	}
	return v
}

func versionFile(n int) string { return fmt.Sprintf("platform/catalog/batch/v%d.yaml", n) }

// An instance changes only to a version whose upgrade_from names the version in force,
// regardless of main in between. The check and the decision agree.
func TestUpgradeFromIsCheckedAgainstTheVersionInForce(t *testing.T) {
	at := func(n int) string {
		return strings.Replace(instance("train", 1, 1), "version: v1", fmt.Sprintf("version: v%d", n), 1)
	}
	catalog := func(over map[string]string) map[string]string {
		return with(estateFiles(map[string]string{versionFile(2): version(2, "v1"), versionFile(3): version(3, "v2"),
			versionFile(4): version(4, "")}), over)
	}
	inForce := catalog(nil)
	l := loader(t)
	repo := trees{
		"in-force": inForce,
		"skip":     catalog(map[string]string{train: at(3)}),
		"step":     catalog(map[string]string{train: at(2)}),
		"any":      catalog(map[string]string{train: at(4)}),
		"widened":  catalog(map[string]string{train: at(3), versionFile(3): version(3, "v2, v1")}),
		// v3 would admit v1, but its change is invalid and therefore held.
		"held": catalog(map[string]string{train: at(3), versionFile(3): version(3, "v2, v1") + "    surprise: yes\n"}),
	}
	found := []string{"modified Instance physics.lhc/train", "lifecycle.upgrade-from " + train + ":7", "held denied " + train}
	for head, want := range map[string][]string{
		"skip":    found,
		"step":    {"modified Instance physics.lhc/train", "train: configure"},
		"any":     {"modified Instance physics.lhc/train", "train: configure"},
		"widened": {"modified AppVersion batch/v3", "modified Instance physics.lhc/train", "train: configure"},
	} {
		t.Run(head, func(t *testing.T) {
			p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(),
				decide.Input{Repo: repo, Base: "in-force", InForce: "in-force", Head: head, Memory: running(t, l, inForce),
					Today: "2026-01-01"})
			require.NoError(t, err)
			require.Equal(t, want, words(p))
			d, err := commit(t, l, estate.Files(repo[head]), estate.Files(inForce))
			require.NoError(t, err)
			require.Equal(t, p.Held, d.Held)
		})
	}

	t.Run("version on main but not in force has no effect", func(t *testing.T) {
		// The base on main has v2, which is not in force: v3 could be reached from it.
		d, err := commit(t, l, estate.Files(repo["skip"]), estate.Files(inForce))
		require.NoError(t, err)
		require.Equal(t, map[string]schema.HeldReason{train: schema.HeldDenied}, reasons(d.Held))
		p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(),
			decide.Input{Repo: repo, Base: "step", InForce: "in-force", Head: "skip", Memory: running(t, l, inForce), Today: "2026-01-01"})
		require.NoError(t, err)
		require.Equal(t, found, words(p))
	})
	t.Run("held version document admits no upgrade", func(t *testing.T) {
		d, err := commit(t, l, estate.Files(repo["held"]), estate.Files(inForce))
		require.NoError(t, err)
		require.Contains(t, reasons(d.Held), train)
		require.Equal(t, "v1", d.Desired.Instance(trainKey).Spec.Version)
	})
}

// A jump outside the window of the software is refused in the pull request with its
// steps, although no upgrade_from forbids it.
func TestJumpOutsideTheWindowIsRefusedInThePullRequest(t *testing.T) {
	at := func(n int) string {
		return strings.Replace(instance("train", 1, 1), "version: v1", fmt.Sprintf("version: v%d", n), 1)
	}
	l, err := estate.New(estate.Options{
		Backends: map[string]string{"bare_metal": "#Config: {...}\n#Parameters: {...}\n"},
		Releases: map[string]schema.Releases{"bare_metal": {{Series: "1"}, {Series: "2", From: []string{"1"}, Step: true},
			{Series: "3", From: []string{"2"}}}},
	})
	require.NoError(t, err)
	inForce := estateFiles(map[string]string{versionFile(2): version(2, ""), versionFile(3): version(3, "")})
	repo := trees{"in-force": inForce, "jump": with(inForce, map[string]string{train: at(3)}),
		"step": with(inForce, map[string]string{train: at(2)})}
	for head, want := range map[string][]string{
		"jump": {"modified Instance physics.lhc/train", "lifecycle.upgrade-window " + train + ":7", "held denied " + train},
		"step": {"modified Instance physics.lhc/train", "train: configure"},
	} {
		p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(),
			decide.Input{Repo: repo, Base: "in-force", InForce: "in-force", Head: head, Memory: running(t, l, inForce),
				Today: "2026-01-01"})
		require.NoError(t, err)
		require.Equal(t, want, words(p))
		if head == "jump" {
			require.Contains(t, p.Diagnostics[0].Message,
				"does not take over its data: upgrade in the steps 1 → 2 → 3, each in a change of its own")
		}
		d, err := commit(t, l, estate.Files(repo[head]), estate.Files(inForce))
		require.NoError(t, err)
		require.Equal(t, p.Held, d.Held)
	}
}

// The pull request gets a finding at the second document for a version in force,
// also if its name sorts first.
func TestSecondDocumentOfVersionGetsTheFinding(t *testing.T) {
	inForce := estateFiles(nil)
	const first = "platform/catalog/batch/a1.yaml"
	repo := trees{"in-force": inForce,
		"head": with(inForce, map[string]string{first: strings.Replace(version(1, ""), "name: v1", "name: a1", 1)})}
	l := loader(t)
	p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(),
		decide.Input{Repo: repo, Base: "in-force", InForce: "in-force", Head: "head", Memory: running(t, l, inForce), Today: "2026-01-01"})
	require.NoError(t, err)
	require.Equal(t, []string{"added AppVersion batch/a1", "conflict.version " + first + ":6", "held invalid " + first}, words(p))
}
