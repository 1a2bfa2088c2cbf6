package daemon

import (
	"berth/reconciler/patch"
	"berth/reconciler/plan"
	"berth/reconciler/pulls"
	"berth/reconciler/report"
)

// rendering returns the functions that render checks and comments for the forge.
// Files are links, unless they may be in the repositories of tenants.
func (d *controller) rendering() pulls.Render {
	files := ""
	if d.forge != nil && len(d.config.Tenants) == 0 {
		files = d.forge.FilesURL()
	}
	return pulls.Render{
		Checks: func(p plan.Proposal, c plan.PullContext) []plan.Check {
			c.Files = files
			return report.Checks(p, c)
		},
		Key: func(p plan.Proposal, c plan.PullContext) string {
			c.Files = files
			return report.Key(p, c)
		},
		Plan: func(p plan.Proposal, c plan.PullContext) string {
			c.Files = files
			return report.Plan(p, c)
		},
		Rollout: func(r plan.Rollout) string {
			r.Files = files
			return report.Rollout(r)
		},
		Answer: report.Answer, Lines: patch.Lines,
	}
}
