/** `/jobs`: the list, one job, and what an admin may do with one. Routes and shapes of the reference's section 4. */
import { Get, HttpCode, Inject, Post, Res } from '@nestjs/common';
import { ApiAcceptedResponse, ApiOkResponse, ApiOperation } from '@nestjs/swagger';
import { AdminActor } from '../../common/http/admin_actor.js';
import { AdminApi, ApiLost, ApiUnknown } from '../../common/http/admin_api.decorator.js';
import { AdminBody, AdminParam, AdminQuery } from '../../common/http/admin_input.js';
import { ReasonDto } from '../../common/http/admin_reason.dto.js';
import type { ListedJob } from '../store/admin.store.js';
import type { JobDoc } from '../store/jobs.schema.js';
import { JOB_EXAMPLE, JOB_ID, JobDetailDto, JobDto, JobPageDto, JobsQueryDto } from './jobs.dto.js';
import { JobsAdminService, type Cancelled } from './jobs_admin.service.js';
import { JobsReader, type JobPage } from './jobs_reader.service.js';

const NO_SUCH_JOB = 'No job has this id';
const Id = (): ParameterDecorator => AdminParam('id', { pattern: /^[0-9a-f]{24}$/i, example: JOB_ID });

@AdminApi({ path: 'jobs', tag: 'jobs' })
export class JobsController {
  constructor(
    @Inject(JobsReader) private readonly reader: JobsReader,
    @Inject(JobsAdminService) private readonly service: JobsAdminService,
  ) {}

  @Get()
  @ApiOperation({ summary: 'Lists jobs, newest first, without their payloads' })
  @ApiOkResponse({
    type: JobPageDto,
    example: { data: [JOB_EXAMPLE], total: 1, total_at_least: false, page: 1, limit: 100 },
  })
  async list(@AdminQuery(JobsQueryDto) { page, cursor, limit, ...filter }: JobsQueryDto): Promise<JobPage> {
    return this.reader.list(filter, { page, cursor, limit });
  }

  @Get(':id')
  @ApiOperation({ summary: 'Shows one job with its payload (secret parts masked), headers, progress and history' })
  @ApiOkResponse({ type: JobDetailDto, example: { ...JOB_EXAMPLE, payload: { delivery_no: 'DO-0001' }, history: [] } })
  @ApiUnknown(NO_SUCH_JOB)
  async detail(@Id() id: string): Promise<JobDoc> {
    return this.reader.detail(id);
  }

  @Post(':id/retry')
  @HttpCode(200)
  @ApiOperation({ summary: 'Brings a DEAD job back with a fresh budget of attempts' })
  @ApiOkResponse({ type: JobDto, example: { ...JOB_EXAMPLE, status: 'PENDING', attempts: 0 } })
  @ApiUnknown(NO_SUCH_JOB)
  @ApiLost('The job is not DEAD, or somebody else was faster')
  async retry(
    @Id() id: string,
    @AdminBody(ReasonDto) { reason }: ReasonDto,
    @AdminActor() actor: string,
  ): Promise<ListedJob> {
    return this.service.retry({ id, actor, reason });
  }

  @Post(':id/skip')
  @HttpCode(200)
  @ApiOperation({ summary: 'Removes a DEAD job' })
  @ApiOkResponse({ description: 'It is gone', example: { _id: JOB_ID, skipped: true } })
  @ApiUnknown(NO_SUCH_JOB)
  @ApiLost('The job is not DEAD, or somebody else was faster')
  async skip(
    @Id() id: string,
    @AdminBody(ReasonDto) { reason }: ReasonDto,
    @AdminActor() actor: string,
  ): Promise<{ _id: unknown; skipped: true }> {
    return this.service.skip({ id, actor, reason });
  }

  @Post(':id/cancel')
  @HttpCode(200)
  @ApiOperation({ summary: 'Cancels a job that waits (removed at once) or runs (told to stop, then removed)' })
  @ApiOkResponse({ description: 'It waited and is gone', example: { _id: JOB_ID, cancelled: true, state: 'deleted' } })
  @ApiAcceptedResponse({
    description: 'It runs and was told to stop',
    example: { _id: JOB_ID, cancelled: true, state: 'cancel_requested' },
  })
  @ApiUnknown(NO_SUCH_JOB)
  @ApiLost('The job neither waits nor runs (`invalid_status`), or is being sent right now (`in_flight`)')
  async cancel(
    @Id() id: string,
    @AdminBody(ReasonDto) { reason }: ReasonDto,
    @AdminActor() actor: string,
    @Res({ passthrough: true }) response: { status(code: number): unknown },
  ): Promise<Cancelled> {
    const cancelled = await this.service.cancel({ id, actor, reason });
    if (cancelled.state === 'cancel_requested') response.status(202);
    return cancelled;
  }
}
