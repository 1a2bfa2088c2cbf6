package slurm

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
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
		for _, ch := range cluster.ReservationChanges(c.have, c.want, now) {
			require.NoError(t, profile.Profile().Programs["scontrol"].Check(ch.Args), c.name)
			calls, why = append(calls, strings.Join(ch.Args, " ")), append(why, ch.Why)
		}
		require.Equal(t, c.calls, calls, c.name)
		require.Equal(t, c.why, why, c.name)
	}
}

// A member shows the reservation of a person that its node is in, while it lasts. In one for maintenance, it takes no jobs.
func TestReservationByHandIsShownAtItsNodes(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	at := func(name string, start, end int64) cli.Reservation {
		return cli.Reservation{Name: name, Start: now.Unix() + start, End: now.Unix() + end, Nodes: []string{"gpu-1"}}
	}
	require.Empty(t, reservedByHand([]cli.Reservation{at("later", 1, 60), at("over", -60, 0), at("berth-declared", -60, 60)}, now))
	v := &observation{controllerReading: controllerReading{nodes: []node{{Name: "gpu-1", State: "idle"}, {Name: "gpu-2", State: "idle"}}}}
	mine := at("mine", -60, 60)
	v.reserved = reservedByHand([]cli.Reservation{mine}, now)
	require.Equal(t, handReservation{text: "in the reservation mine until 2027-01-15 08:01 UTC: other jobs do not start on what it holds"},
		v.reserved["gpu-1"])
	require.Empty(t, v.outOfService("gpu-1"), "its users have it")
	mine.Flags = []string{"MAINT", "SPEC_NODES"}
	v.reserved = reservedByHand([]cli.Reservation{mine}, now)
	require.Equal(t, "in the maintenance reservation mine until 2027-01-15 08:01 UTC: only jobs submitted to it start there",
		v.outOfService("gpu-1"))
	require.Empty(t, v.outOfService("gpu-2"))
}

// The root helper makes no reservation for other users, with other flags or of other names.
func TestHelperRefusesOtherReservations(t *testing.T) {
	check := profile.Profile().Programs["scontrol"].Check
	for _, args := range []string{
		"create reservation reservationname=mine starttime=now endtime=uts1800000120 nodes=gpu-1 users=root flags=MAINT,IGNORE_JOBS",
		"create reservation reservationname=berth-a starttime=now endtime=uts1800000120 nodes=gpu-1 users=alice flags=MAINT,IGNORE_JOBS",
		"create reservation reservationname=berth-a starttime=now nodes=ALL users=root flags=ANY_NODES",
		"update reservation reservationname=of-an-administrator endtime=uts1800000120",
		"create reservation reservationname=berth-a starttime=now endtime=uts1800000120 nodes=gpu-1",
		"create reservation reservationname=berth-a starttime=now endtime=uts1800000120 nodes=gpu-1 users=root",
		"delete reservationname=of-an-administrator", "create reservation", "create partition partitionname=x",
	} {
		require.Error(t, check(strings.Fields(args)), args)
	}
}

func TestReservationsAreChecked(t *testing.T) {
	for config, problem := range map[string]string{
		`{"name":"a","start":"2026-12-24T18:00:00Z","duration_minutes":0}`:                                                                    "reservations[0].duration_minutes: is 0",
		`{"name":"A","start":"2026-12-24T18:00:00Z","duration_minutes":60}`:                                                                   `reservations[0].name: "A" is invalid`,
		`{"name":"a","start":"1999-12-24T18:00:00Z","duration_minutes":60}`:                                                                   "reservations[0].start: 1999-12-24T18:00:00Z is no time",
		`{"name":"a","start":"2026-12-24T18:00:00Z","duration_minutes":60},{"name":"a","start":"2026-12-25T18:00:00Z","duration_minutes":60}`: `reservations[1].name: "a" is invalid, or there twice`,
		`{"name":"a","start":"2026-12-24T18:00:00.5Z","duration_minutes":60}`:                                                                 "reservations[0].start: 2026-12-24T18:00:00.5Z is no time",
		`{"name":"a","start":"2026-13-24T18:00:00Z","duration_minutes":60}`:                                                                   "month out of range",
	} {
		_, err := cluster.Parse([]byte(`{"reservations":[` + config + `]}`))
		require.ErrorContains(t, err, problem)
	}
}
