package slurm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/usage"
)

// BenchmarkUsage measures the usage of 100,000 jobs, from sacct to records, beside sacct itself and sreport
// on the same host. The bill equals sreport to the second. No job was suspended: each day with a job that was
// suspended and ran over midnight costs one more call of sacct, 0.4 to 0.6 s on Slurm 22.05.
func BenchmarkUsage(b *testing.B) {
	const jobs = 100_000
	for b.Loop() {
		l := newLedger(b)
		month := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
		next := month.AddDate(0, 1, 0)
		l.past(b, jobs, month.Add(-48*time.Hour), 35*24*time.Hour, 20_000, false)
		var records []usage.Record
		b.ReportMetric(milliseconds(3, func(int) {
			reading, err := l.read(b, time.Unix(0, 0))
			require.NoError(b, err)
			records = attributed(reading.Jobs)
		}), "read-ms")
		b.ReportMetric(milliseconds(3, func(int) {
			l.tool(b, l.unit, fmt.Sprintf("sacct -XaDP --noconvert -S uts%d "+
				"--format=Cluster,JobIDRaw,Submit,Start,End,State,Account,User,AllocTRES,ElapsedRaw,NodeList,Partition,QOS >/dev/null",
				month.AddDate(0, -1, 0).Unix()))
		}), "sacct-ms")
		b.ReportMetric(milliseconds(3, func(int) { bill(records, nil, schema.SplitNone) }), "bill-ms")
		b.ReportMetric(milliseconds(3, func(int) { l.report(b, month, next) }), "sreport-ms")
		runs := map[usage.Run]bool{}
		for _, r := range records {
			runs[r.Run()] = true
		}
		require.GreaterOrEqual(b, len(runs), jobs)
		l.checkBill(b, records, month, next)
	}
}
