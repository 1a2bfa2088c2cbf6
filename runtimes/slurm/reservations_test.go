package slurm

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

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
