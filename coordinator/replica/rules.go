package replica

// The rules that tests can switch off, one at a time, by Options.Break. Each
// removal must be caught by a global property of the simulator or the model;
// the daemon never sets it.
const (
	// BreakSyncBeforeAck acknowledges what is not durable yet.
	BreakSyncBeforeAck = "sync-before-ack"
	// BreakEpochCheck lets a replica answer epochs below its promise.
	BreakEpochCheck = "epoch-check"
	// BreakMaximalISR forgets proposals whose answer is unknown.
	BreakMaximalISR = "maximal-isr"
	// BreakMarkerGate serves before the marker is committed.
	BreakMarkerGate = "marker-gate"
	// BreakDupCRC takes equal (epoch, offset) for an equal batch, or any batch
	// at that offset, without comparing the checksum.
	BreakDupCRC = "dup-crc"
	// BreakRollbackEpoch takes puts back without winning a new epoch.
	BreakRollbackEpoch = "rollback-epoch"
	// BreakRollbackAnswer reports rolled back before the marker is committed.
	BreakRollbackAnswer = "rollback-answer"
	// BreakStoreID counts acknowledgements of any store of a member's node.
	BreakStoreID = "store-id"
	// BreakJoinBar lets a newcomer join that has not caught up.
	BreakJoinBar = "join-bar"
	// BreakIncarnation lets a restarted broker resume the epoch it led.
	BreakIncarnation = "incarnation"
	// BreakAckVerified acknowledges the whole durable log, not only what was
	// compared with this leader's.
	BreakAckVerified = "ack-verified"
	// BreakFollowerCommit takes the leader's committed end beyond what was
	// compared.
	BreakFollowerCommit = "follower-commit"
	// BreakRequestID does not recognise repeated puts.
	BreakRequestID = "request-id"
	// BreakMinISR proposes in-sync sets below the minimum.
	BreakMinISR = "min-isr"
	// BreakElectOutsideISR lets any replica stand for election.
	BreakElectOutsideISR = "elect-outside-isr"
	// BreakConfirmOrder applies channel-state deltas over a gap.
	BreakConfirmOrder = "confirm-order"
	// BreakAckEpoch counts acknowledgements of other epochs.
	BreakAckEpoch = "ack-epoch"
)

func (m *Machine) broken(rule string) bool { return m.o.Break == rule }
