package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

func TestReservationChanges(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	at := func(name string, start, end int64, nodes ...string) cli.Reservation {
		return cli.Reservation{Name: name, Start: now.Unix() + start, End: now.Unix() + end, Nodes: nodes, Users: []string{"root"},
			Flags: []string{"MAINT", "IGNORE_JOBS", "SPEC_NODES"}}
	}
	byHand := at("berth-a", 60, 120, "gpu-1")
	byHand.Flags = []string{"SPEC_NODES"}
	for _, c := range []struct {
		name       string
		have, want []cli.Reservation
		calls, why []string
	}{
		{"nothing to do", []cli.Reservation{at("berth-a", 60, 120, "gpu-2", "gpu-1"), at("of-an-administrator", 60, 120, "gpu-1")},
			[]cli.Reservation{at("berth-a", 60, 120, "gpu-1", "gpu-2")}, nil, nil},
		{"missing", nil, []cli.Reservation{at("berth-a", 60, 120, "gpu-1", "gpu-2")},
			[]string{"create reservation reservationname=berth-a starttime=uts1800000060 endtime=uts1800000120 nodes=gpu-1,gpu-2 " +
				"users=root flags=MAINT,IGNORE_JOBS"}, []string{"reservation a is missing"}},
		{"missing, and it should have begun", nil, []cli.Reservation{at("berth-a", -60, 120, "gpu-1")},
			[]string{"create reservation reservationname=berth-a starttime=now endtime=uts1800000120 nodes=gpu-1 users=root " +
				"flags=MAINT,IGNORE_JOBS"}, []string{"reservation a is missing"}},
		{"another start, end and node", []cli.Reservation{at("berth-a", 60, 120, "gpu-1")},
			[]cli.Reservation{at("berth-a", 90, 150, "gpu-2")},
			[]string{"update reservation reservationname=berth-a starttime=uts1800000090 endtime=uts1800000150 nodes=gpu-2 users=root " +
				"flags=MAINT,IGNORE_JOBS"}, []string{"reservation a has another start, end, nodes"}},
		{"its start was changed after it has begun", []cli.Reservation{at("berth-a", -60, 120, "gpu-1")},
			[]cli.Reservation{at("berth-a", -90, 120, "gpu-1")}, nil, nil},
		{"it has begun, and is to begin later", []cli.Reservation{at("berth-a", -60, 120, "gpu-1")},
			[]cli.Reservation{at("berth-a", 90, 150, "gpu-1")},
			[]string{"delete reservationname=berth-a",
				"create reservation reservationname=berth-a starttime=uts1800000090 endtime=uts1800000150 nodes=gpu-1 users=root " +
					"flags=MAINT,IGNORE_JOBS"},
			[]string{"reservation a has begun, and is to begin later", "reservation a has begun, and is to begin later"}},
		{"its flags were changed by hand", []cli.Reservation{byHand}, []cli.Reservation{at("berth-a", 60, 120, "gpu-1")},
			[]string{"update reservation reservationname=berth-a endtime=uts1800000120 nodes=gpu-1 users=root flags=MAINT,IGNORE_JOBS"},
			[]string{"reservation a has another flags"}},
		{"no longer declared", []cli.Reservation{at("berth-a", 60, 120, "gpu-1")}, nil, []string{"delete reservationname=berth-a"},
			[]string{"reservation a is not declared"}},
		{"over", []cli.Reservation{at("berth-a", -120, 0, "gpu-1")}, nil, nil, nil},
	} {
		var calls, why []string
		for _, ch := range ReservationChanges(c.have, c.want, now) {
			require.NoError(t, profile.Profile().Programs["scontrol"].Check(ch.Args), c.name)
			calls, why = append(calls, strings.Join(ch.Args, " ")), append(why, ch.Why)
		}
		require.Equal(t, c.calls, calls, c.name)
		require.Equal(t, c.why, why, c.name)
	}
}
