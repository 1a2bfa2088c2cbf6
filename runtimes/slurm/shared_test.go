package slurm_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

var carol = schema.UnixUser{Name: "berthtest2", UID: 42003}

// The projects of the tests: alice belongs to two of them.
func lhc() schema.EffectiveAttachment {
	return schema.EffectiveAttachment{ProjectID: "physics.lhc", Name: "lhc", Users: []string{alice.Name}, Share: 3}
}

func ligo() schema.EffectiveAttachment {
	return schema.EffectiveAttachment{ProjectID: "physics.ligo", Name: "ligo", Users: []string{alice.Name, bob.Name}, Share: 1}
}

func genes() schema.EffectiveAttachment {
	return schema.EffectiveAttachment{ProjectID: "bio.genes", Name: "genes", Users: []string{carol.Name}, Share: 1}
}

// share returns a unit with attachments, sorted by project, and their users.
func (c *company) share(u plan.Unit, attachments ...schema.EffectiveAttachment) plan.Unit {
	u.Effective.Attachments, u.Effective.Users = attachments, nil
	for _, user := range []schema.UnixUser{alice, bob, carol} {
		for _, a := range attachments {
			if strings.Contains(strings.Join(a.Users, " "), user.Name) {
				u.Effective.Users = append(u.Effective.Users, user)
				break
			}
		}
	}
	return u
}

// newSharing lends a lab without a cluster, for a shared runtime that is made from nothing.
func newSharing(t testing.TB) *company {
	t.Helper()
	c := &company{stage: bareStage(t)}
	c.rt = c.runtime(t)
	return c
}

// job submits a job of a project.
func (c *company) job(t testing.TB, u plan.Unit, user schema.UnixUser, project, script string, options ...string) string {
	t.Helper()
	id, err := c.trySubmit(t, u, user, script+"\n", append(options, "--account="+project)...)
	require.NoError(t, err)
	return id
}
