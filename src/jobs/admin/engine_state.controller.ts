/** `/partitions`, `/workers`, `/audit`: the engine itself, read only. */
import { Get, Inject } from '@nestjs/common';
import { ApiOkResponse, ApiOperation } from '@nestjs/swagger';
import { AdminApi } from '../../common/http/admin_api.decorator.js';
import { AdminQuery } from '../../common/http/admin_input.js';
import type { WorkerDoc } from '../store/jobs.schema.js';
import { EngineState, type AuditPage, type PartitionState } from './engine_state.service.js';
import { PagingDto } from './jobs.dto.js';
import {
  AUDIT_EXAMPLE,
  AuditPageDto,
  PARTITIONS_EXAMPLE,
  PartitionDto,
  WORKERS_EXAMPLE,
  WorkerDto,
} from './overview.dto.js';

@AdminApi({ path: 'partitions', tag: 'engine' })
export class PartitionsController {
  constructor(@Inject(EngineState) private readonly state: EngineState) {}

  @Get()
  @ApiOperation({ summary: 'Lists the partitions of the fast lane: owner, lease, what was marked last' })
  @ApiOkResponse({ type: PartitionDto, isArray: true, example: PARTITIONS_EXAMPLE })
  async list(): Promise<PartitionState[]> {
    return this.state.partitions();
  }
}

@AdminApi({ path: 'workers', tag: 'engine' })
export class WorkersController {
  constructor(@Inject(EngineState) private readonly state: EngineState) {}

  @Get()
  @ApiOperation({ summary: 'Lists the pods that run lanes, latest heartbeat first' })
  @ApiOkResponse({ type: WorkerDto, isArray: true, example: WORKERS_EXAMPLE })
  async list(): Promise<(WorkerDoc & { live: boolean })[]> {
    return this.state.workers();
  }
}

@AdminApi({ path: 'audit', tag: 'engine' })
export class AuditController {
  constructor(@Inject(EngineState) private readonly state: EngineState) {}

  @Get()
  @ApiOperation({ summary: 'Lists what admins changed, newest first: who, what, how many, why' })
  @ApiOkResponse({ type: AuditPageDto, example: AUDIT_EXAMPLE })
  async list(@AdminQuery(PagingDto) query: PagingDto): Promise<AuditPage> {
    return this.state.audit(query);
  }
}
