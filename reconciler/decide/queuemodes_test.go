package decide_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/schema"
)

const (
	queueMapFile = "platform/queues/physics.yaml"
	queueMapPage = "platform/queues/README.md"
	contractNow  = "boundary/v1+0123456789ab"
)

// queueMapOf returns a map for the tenant physics. until is the last day of its rollback; "": it has none.
func queueMapOf(mode, until string) string {
	text := doc("QueueMap", "physics",
		fmt.Sprintf("spec:\n  app: batch\n  applies_to: [physics]\n  queues: [{queue: short, partition: main}]\n  mode: %s\n  contract: "+
			"%s\n  runbook: %s\n", mode, contractNow, queueMapPage))
	if until != "" {
		text += fmt.Sprintf("  rollback: {owner: ops, reason: incident 7, expires_at: %q, follow_up: task 12, runbook: %s}\n", until,
			queueMapPage)
	}
	return text
}

// expiredStory begins with a map whose rollback expired before the day of all stories.
func expiredStory(t *testing.T) *story {
	s := tell(t, map[string]string{queueMapPage: "# How to go back\n", queueMapFile: queueMapOf("passthrough", "2026-01-30")})
	s.d = decide.New(decide.Options{Loader: loader(t), Authority: &decide.Authority{Administrators: []string{"root"}},
		Rules: []decide.Rule{schema.QueueModes(contractNow)}})
	return s
}

// After the last day of a rollback, changes of the units that the map serves are held until the rollback is renewed or
// removed. Other changes, the renewal and the removal come into force (requirement C5).
func TestExpiredRollbackHoldsChangesOfWhatItServes(t *testing.T) {
	s := expiredStory(t)
	s.commits("pia", map[string]string{train: instance("train", 2, 1)})
	s.commits("tina", map[string]string{rules: doc("Policy", "policy", "spec:\n  max_gpus_per_instance: 7\n")})
	d := s.together()
	require.Equal(t, map[string]schema.HeldReason{train: schema.HeldDenied}, reasons(d.Held), "an unrelated change comes into force")
	require.Contains(t, d.Held[0].Message, "expired on 2026-01-30 ("+queueMapFile+":")

	for name, file := range map[string]string{"renewed": queueMapOf("passthrough", "2026-02-28"), "removed": queueMapOf("passthrough", ""),
		"deleted": "", "back in real-policy": queueMapOf("real-policy", "")} {
		s := expiredStory(t)
		s.commits("pia", map[string]string{train: instance("train", 2, 1)})
		s.commits("root", map[string]string{queueMapFile: file})
		require.Equal(t, map[string]schema.HeldReason{train: schema.HeldDenied}, reasons(s.together().Held),
			"%s: a tenant's change in the same window does not hold it", name)
		s.commits("mel", map[string]string{"README.md": "later"})
		require.Empty(t, s.together().Held, name)
	}
}

// A tenant's user neither lifts the refusal nor holds the platform: his renewal and his deletion of the runbook
// are held, and the platform's changes beside them come into force.
func TestTenantDoesNotDecideOnARollback(t *testing.T) {
	s := expiredStory(t)
	s.commits("pia", map[string]string{queueMapFile: queueMapOf("passthrough", "2026-02-28"), train: instance("train", 2, 1)})
	require.Equal(t, map[string]schema.HeldReason{queueMapFile: schema.HeldUnauthorised, train: schema.HeldDenied},
		reasons(s.together().Held), "renewal and use by a tenant's user")
	s.commits("pia", map[string]string{train: instance("train", 3, 1)})
	require.Equal(t, map[string]schema.HeldReason{queueMapFile: schema.HeldUnauthorised, train: schema.HeldDenied},
		reasons(s.together().Held), "his renewal stays held")
	s.commits("pia", map[string]string{queueMapPage: ""})
	s.commits("root", map[string]string{queueMapFile: queueMapOf("real-policy", "")})
	d := s.together()
	require.NotContains(t, reasons(d.Held), queueMapFile, "the platform's change of the mode is in force")
	require.Equal(t, schema.HeldUnauthorised, reasons(d.Held)[queueMapPage])
	require.True(t, d.Desired.Publishes(queueMapPage), "the runbook stays in force")
	require.Equal(t, schema.ModeRealPolicy, d.Desired.QueueMaps()[0].Spec.Mode)

	s.commits("root", map[string]string{queueMapPage: ""}) // it is gone from main already; root restores and deletes it
	s.commits("root", map[string]string{queueMapPage: "# How to go back\n"})
	require.NotContains(t, reasons(s.together().Held), queueMapPage)
	s.commits("root", map[string]string{queueMapPage: ""})
	d = s.together()
	require.Equal(t, schema.HeldDenied, reasons(d.Held)[queueMapPage], "the runbook of real-policy is not deleted")
	require.True(t, d.Desired.Publishes(queueMapPage))
}
