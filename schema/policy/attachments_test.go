package policy_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/policy"
)

const (
	campusEstate = "../../examples/campus"
	colliderFile = "tenants/physics/shared-runtimes/department/attachments/collider.yaml"
	analysisFile = "tenants/physics/projects/collider/instances/analysis.yaml"
	lentFile     = "tenants/physics/projects/collider/contributions/gpu-3.yaml"
)

var department = schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"}

// campusFile returns a file of the campus with a text replaced.
func campusFile(t *testing.T, path, old, now string) string {
	t.Helper()
	data, err := os.ReadFile(campusEstate + "/" + path)
	require.NoError(t, err)
	require.Contains(t, string(data), old)
	return strings.Replace(string(data), old, now, 1)
}

// terms returns the effective attachment of a project to a shared runtime, or nil.
func terms(e *schema.Effective, runtime schema.Key, project string) *schema.EffectiveAttachment {
	u := e.Unit(runtime)
	for i := range u.Attachments {
		if u.Attachments[i].ProjectID == project {
			return &u.Attachments[i]
		}
	}
	return nil
}

// A project is attached once it accepts the terms with an Instance that names the runtime. The
// narrower limit of the two sides holds, and both places are explained.
func TestTermsAreTwoSided(t *testing.T) {
	open := policy.Evaluate(estateFiles(t, campusEstate, nil))
	require.Nil(t, terms(open, department, "physics.lattice"), "no Instance of lattice names it")
	require.Equal(t, 4, terms(open, department, "physics.collider").MaxGPUs)
	require.NotEmpty(t, terms(open, department, "physics.collider").Users)
	require.Empty(t, open.About(department))

	gone := policy.Evaluate(estateFiles(t, campusEstate, map[string]string{analysisFile: "", lentFile: ""}))
	require.Nil(t, terms(gone, department, "physics.collider"))
	require.Empty(t, gone.Unit(department).Users)
	require.NotNil(t, gone.Unit(department), "the runtime itself goes on")

	d := estateFiles(t, campusEstate, map[string]string{
		analysisFile: campusFile(t, analysisFile, "  requested_by:",
			"  submission_limits: {max_gpus: 2, max_running_jobs: 50, queues: [night, main]}\n  requested_by:"),
		colliderFile: campusFile(t, colliderFile, "    priority: 100", "    queues: [main, long]\n    priority: 100"),
	})
	narrow := policy.Evaluate(d)
	a := terms(narrow, department, "physics.collider")
	require.Equal(t, schema.SubmissionLimits{MaxGPUs: 2, MaxRunningJobs: 20, Queues: []string{"main"}}, a.SubmissionLimits)
	var said []string
	for _, x := range narrow.About(department) {
		require.Equal(t, []string{analysisFile, colliderFile}, []string{x.Source.File, x.At.File})
		said = append(said, x.Field+": "+x.Message)
	}
	require.Equal(t, []string{
		"attachments.physics.collider.max_gpus: physics.collider asks for only 2",
		"attachments.physics.collider.max_running_jobs: physics.collider asks for 50; the owner of the runtime allows only 20",
		"attachments.physics.collider.queues: physics.collider asks for only main",
	}, said)

	x, ok := policy.ExplainShared(d, department)
	require.True(t, ok)
	view, ok := policy.Explain(d.Platform, d.Tenants["physics"], analysis)
	require.True(t, ok)
	for field, values := range map[string][]policy.Value{"attachments.physics.collider.max_gpus": x.Values,
		"submission_limits.max_gpus": view.Values} {
		found := false
		for _, v := range values {
			if v.Field == field {
				found = true
				require.Equal(t, 2, v.Value)
				require.Equal(t, []string{colliderFile, analysisFile}, []string{v.Steps[0].Source.File, v.Steps[1].Source.File})
			}
		}
		require.True(t, found, field)
	}
}

// A project without an enabled entitlement, or whose Instance is stopped, or whose attachment
// allows none, submits no new jobs.
func TestClosedAttachments(t *testing.T) {
	const entitled = "tenants/physics/projects/collider/entitlements/slurm.yaml"
	for name, over := range map[string]map[string]string{
		"entitlement": {entitled: document("Entitlement", "slurm", "enabled: false")},
		"stopped":     {analysisFile: campusFile(t, analysisFile, "  requested_by:", "  desired_state: stopped\n  requested_by:")},
		"owner":       {colliderFile: campusFile(t, colliderFile, "    max_gpus: 4", "    allow: false\n    max_gpus: 4")},
		"no queue": {
			analysisFile: campusFile(t, analysisFile, "  requested_by:", "  submission_limits: {queues: [night]}\n  requested_by:"),
			colliderFile: campusFile(t, colliderFile, "    max_gpus: 4", "    queues: [main]\n    max_gpus: 4"),
		},
	} {
		require.True(t, terms(policy.Evaluate(estateFiles(t, campusEstate, over)), department, "physics.collider").Closed, name)
	}
	require.False(t, terms(policy.Evaluate(estateFiles(t, campusEstate, nil)), department, "physics.collider").Closed)
}

// The suspension of a project's Instance, or of anything above it, suspends its attachment.
func TestSuspendedAttachments(t *testing.T) {
	for _, path := range []string{
		"tenants/physics/projects/collider/project.yaml", "tenants/physics/projects/collider/entitlements/slurm.yaml", analysisFile,
		colliderFile,
	} {
		d := estateFiles(t, campusEstate, map[string]string{path: campusFile(t, path, "\nspec:", "\nsuspend: true\nspec:")})
		require.True(t, terms(policy.Evaluate(d), department, "physics.collider").Suspend, path)
	}
	require.False(t, terms(policy.Evaluate(estateFiles(t, campusEstate, nil)), department, "physics.collider").Suspend)
}

// A lent node returns with the begin of the earlier of the two days that owner and project name.
func TestLoansEndWithTheirDay(t *testing.T) {
	d := estateFiles(t, campusEstate, map[string]string{
		lentFile: campusFile(t, lentFile, "  nodes:", "  until: 2027-03-31\n  nodes:"),
		colliderFile: campusFile(t, colliderFile, "    allow: true",
			"    allow: true\n    until: 2027-02-01\n    on_jobs: {cancel_after_seconds: 60}"),
	})
	var j policy.Judge
	for day, lent := range map[string]int{"2027-01-31": 1, "2027-02-01": 0, "2027-03-30": 0} {
		for _, e := range []*schema.Effective{j.Evaluate(d, d, day), policy.Evaluate(d, everything, policy.At(day))} {
			require.Len(t, e.Unit(department).Lent, lent, day)
		}
	}
	l := policy.Evaluate(d, policy.At("2027-01-31")).Unit(department).Lent[0]
	require.Equal(t, schema.LentNode{Node: "gpu-3", Role: "worker",
		Loan: schema.Loan{ProjectID: "physics.collider", Until: "2027-02-01", OnJobs: &schema.OnJobs{CancelAfterSeconds: 60}}}, l)
}

// A node is lent only where the Attachment allows it and the project has accepted the terms.
func TestLoansNeedTheAttachment(t *testing.T) {
	require.Len(t, policy.Evaluate(estateFiles(t, campusEstate, nil)).Unit(department).Lent, 1)
	// no other test reads this one
	d := estateFiles(t, campusEstate, map[string]string{lentFile: campusFile(t, lentFile, "#", "# Refused below:")})
	attachment := *d.Tenants["physics"].SharedRuntimes["department"].Attachments["collider"]
	attachment.Spec.ContributionPolicy.Allow = false // the reader holds the Contribution back before
	d.Tenants["physics"].SharedRuntimes["department"].Attachments["collider"] = &attachment
	require.Empty(t, policy.Evaluate(d).Unit(department).Lent)
	require.Empty(t, policy.Evaluate(estateFiles(t, campusEstate, map[string]string{analysisFile: ""})).Unit(department).Lent)
}

// An Attachment whose max_nodes is narrowed takes back the nodes beyond it. The first ones by the names of the
// Contributions and their order there stay, over all Contributions of a project together.
func TestLoansBeyondNarrowedMaxNodesAreTakenBack(t *testing.T) {
	// no other test reads this one
	d := estateFiles(t, campusEstate, map[string]string{lentFile: campusFile(t, lentFile, "#", "# Changed below:")})
	project, runtime := d.Tenants["physics"].Projects["collider"], d.Tenants["physics"].SharedRuntimes["department"]
	for name, first := range project.Contributions {
		more := *first
		more.Spec.Nodes = []string{"gpu-4", "gpu-5"}
		project.Contributions[name+"-more"] = &more
		break
	}
	for most, want := range map[int][]string{0: {"gpu-3", "gpu-4", "gpu-5"}, 3: {"gpu-3", "gpu-4", "gpu-5"}, 2: {"gpu-3", "gpu-4"},
		1: {"gpu-3"}} {
		attachment := *runtime.Attachments["collider"]
		attachment.Spec.ContributionPolicy.MaxNodes = most // the reader holds a new Contribution beyond it back before
		runtime.Attachments["collider"] = &attachment
		var lent []string
		for _, l := range policy.Evaluate(d).Unit(department).Lent {
			lent = append(lent, l.Node)
		}
		require.Equal(t, want, lent, "max_nodes: %d", most)
	}
}
