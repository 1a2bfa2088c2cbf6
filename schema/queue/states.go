package queue

// States returns the states of jobs (squeue(1), JOB STATE CODES).
func States() []string {
	return []string{
		"BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "CONFIGURING", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PENDING",
		"PREEMPTED",
		"REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "REVOKED", "RUNNING", "SIGNALING", "SPECIAL_EXIT",
		"STAGE_OUT", "STOPPED", "SUSPENDED", "TIMEOUT",
	}
}
