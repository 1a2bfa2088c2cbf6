//go:build long

package github_test

import (
	"testing"

	"berth/webhooks/forgetest"
	"berth/webhooks/github"
)

func TestLongConformanceWithCommitStatuses(t *testing.T) {
	t.Parallel()
	forgetest.Run(t, func(t *testing.T) forgetest.Harness { return newRepository(t, github.Statuses, "pat", "robot") })
}
