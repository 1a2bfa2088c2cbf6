package statusbranch

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// The overview counts instances and shared runtimes apart, each in its phases, and follows
// changes of them.
func TestOverviewCountsUnitsByKind(t *testing.T) {
	file := func(key schema.Key, p plan.Phase) statusFile {
		return statusFile{path: key.String(), Key: key, Status: &plan.Status{Key: key, Phase: p}}
	}
	shared := schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "commons"}
	attachment := schema.Key{Kind: schema.KindAttachment, Tenant: "physics", Parent: "commons", Name: "lab"}
	x := &statusIndex{things: map[schema.Key]*plan.ThingStatus{}, tally: newTally(), reviews: map[int]*plan.Review{},
		warnings: map[string]string{}}
	table := func(files ...statusFile) string {
		text := string(readme(reconciler.Revision{}, x, files))
		_, text, _ = strings.Cut(text, "none yet` |\n")
		text, _, _ = strings.Cut(text, "| Documents held")
		return text
	}
	require.Equal(t, "| Instances | 0 |\n", table())
	files := []statusFile{
		file(schema.InstanceKey("physics", "lab", "a"), plan.PhaseRunning),
		file(schema.InstanceKey("physics", "lab", "b"), plan.PhaseFailed), file(shared, plan.PhaseRunning),
		{path: "x", Key: attachment, Thing: &plan.ThingStatus{Key: attachment, Phase: "attached"}},
	}
	x.set(files)
	require.Equal(t, "| Instances | 2 |\n| … failed | 1 |\n| … running | 1 |\n| Shared runtimes | 1 |\n| … running | 1 |\n| Of kind "+
		"Attachment | 1 |\n", table())
	require.Equal(t, "| Instances | 2 |\n| … failed | 1 |\n| … running | 1 |\n| Shared runtimes | 1 |\n| … deleting | 1 |\n| Of kind "+
		"Attachment | 1 |\n", table(file(shared, plan.PhaseDeleting)))
	require.Equal(t, "| Instances | 2 |\n| … failed | 1 |\n| … running | 1 |\n| Of kind Attachment | 1 |\n",
		table(statusFile{path: shared.String(), Key: shared}))
}
