package cluster

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/runtimes/slurm/accounting"
	"berth/schema"
)

// No QoS that a project may use, and none of a partition that takes its jobs, has a limit that
// slurmctld would use in place of one of the project's account.
func TestNoQoSReplacesALimitOfAProject(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.SampledFrom([]int{0, 0, 1, 60})
		set := Config{}
		for _, name := range []string{"a", "b", "normal"} {
			set.QoS = append(set.QoS, QoS{
				Name: name, MaxTimeMinutes: number.Draw(t, "time"),
				Group: QoSLimits{
					GPUs: number.Draw(t, "gpus"), CPUs: number.Draw(t, "cpus"), Jobs: number.Draw(t, "jobs"),
					Submits: number.Draw(t, "submits"),
				},
				Users: rapid.SampledFrom([][]string{nil, {"alice"}}).Draw(t, "users"),
			})
		}
		set.Partitions = []Partition{{Name: "main", QOS: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "partition")}}
		a := schema.EffectiveAttachment{ProjectID: "x.y", Closed: rapid.Bool().Draw(t, "closed"), SubmissionLimits: schema.SubmissionLimits{
			MaxGPUs: number.Draw(t, "max gpus"), MaxCPUs: number.Draw(t, "max cpus"), MaxRunningJobs: number.Draw(t, "max jobs"),
			MaxWalltimeMinutes: number.Draw(t, "max wall"),
		}}
		account := set.projectAccount(a, nil)
		usable := slices.Concat(account.QoS, namesOfQoS(account.Optional))
		if set.admits(set.Partitions[0], a) {
			usable = append(usable, set.Partitions[0].QOS)
		}
		for _, q := range set.QoS {
			s := q.Settings()
			if !slices.Contains(usable, q.Name) {
				continue
			}
			for _, limit := range []accounting.Setting{"grpjobs", "grpsubmitjobs"} {
				require.False(t, account.Settings[limit] != "" && s[limit] != "", "%s by QoS %s", limit, q.Name)
			}
			for _, resource := range []string{"cpu=", "gres/gpu="} {
				require.False(t, strings.Contains(string(account.Settings["grptres"]), resource) &&
					strings.Contains(s["grptres"], resource), "%s by QoS %s", resource, q.Name)
			}
			require.False(t, a.MaxWalltimeMinutes > 0 && q.MaxTimeMinutes > a.MaxWalltimeMinutes)
		}
	})
}

func namesOfQoS(list []QoS) (out []string) {
	for _, q := range list {
		out = append(out, q.Name)
	}
	return out
}
