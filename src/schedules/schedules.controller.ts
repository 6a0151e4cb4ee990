/** Admin routes of schedules (reference, section 4; design, sections 8 and 10). Only HTTP: what happens is the service's. */
import { Delete, Get, HttpCode, Inject, Post, Put } from '@nestjs/common';
import { ApiOkResponse, ApiOperation } from '@nestjs/swagger';
import { AdminActor } from '../common/http/admin_actor.js';
import { AdminApi, ApiUnknown } from '../common/http/admin_api.decorator.js';
import { AdminBody, AdminParam, AdminQuery } from '../common/http/admin_input.js';
import { ReasonDto } from '../common/http/admin_reason.dto.js';
import { CronOverrideBody, PreviewBody, PreviewQuery, RunNowBody, ScheduleBody } from './schedules.dto.js';
import { SchedulesAdmin, type ScheduleView } from './schedules_admin.service.js';

const CODE = { description: 'Code of the schedule', example: 'nightly_report' };
const UNKNOWN = 'No schedule has this code';

@AdminApi({ path: 'schedules', tag: 'schedules' })
export class SchedulesController {
  constructor(@Inject(SchedulesAdmin) private readonly admin: SchedulesAdmin) {}

  @Get()
  @ApiOperation({ summary: 'All schedules, by code' })
  @ApiOkResponse({ type: [ScheduleBody] })
  list(): Promise<ScheduleView[]> {
    return this.admin.list();
  }

  @Post(':code/enable')
  @HttpCode(200)
  @ApiOperation({ summary: 'Enable: the next slot after now comes first, missed ones do not' })
  @ApiOkResponse({ type: ScheduleBody })
  @ApiUnknown(UNKNOWN)
  enable(
    @AdminParam('code', CODE) code: string,
    @AdminBody(ReasonDto) { reason }: ReasonDto,
    @AdminActor() actor: string,
  ): Promise<ScheduleView> {
    return this.admin.enable(code, actor, reason);
  }

  @Post(':code/disable')
  @HttpCode(200)
  @ApiOperation({ summary: 'Disable: no new slots; one already enqueued still runs' })
  @ApiOkResponse({ type: ScheduleBody })
  @ApiUnknown(UNKNOWN)
  disable(
    @AdminParam('code', CODE) code: string,
    @AdminBody(ReasonDto) { reason }: ReasonDto,
    @AdminActor() actor: string,
  ): Promise<ScheduleView> {
    return this.admin.disable(code, actor, reason);
  }

  @Put(':code/cron_override')
  @ApiOperation({ summary: 'Run by another expression than the code says' })
  @ApiOkResponse({ type: ScheduleBody })
  @ApiUnknown(UNKNOWN)
  override(
    @AdminParam('code', CODE) code: string,
    @AdminBody(CronOverrideBody) { cron_override, reason }: CronOverrideBody,
    @AdminActor() actor: string,
  ): Promise<ScheduleView> {
    return this.admin.override(code, cron_override, actor, reason);
  }

  @Delete(':code/cron_override')
  @ApiOperation({ summary: "Back to the code's expression" })
  @ApiOkResponse({ type: ScheduleBody })
  @ApiUnknown(UNKNOWN)
  clearOverride(
    @AdminParam('code', CODE) code: string,
    @AdminBody(ReasonDto) { reason }: ReasonDto,
    @AdminActor() actor: string,
  ): Promise<ScheduleView> {
    return this.admin.clearOverride(code, actor, reason);
  }

  @Post(':code/run_now')
  @HttpCode(200)
  @ApiOperation({ summary: 'One extra run beside the slots' })
  @ApiOkResponse({ type: RunNowBody })
  @ApiUnknown('No schedule of the answering pod has this code')
  runNow(
    @AdminParam('code', CODE) code: string,
    @AdminBody(ReasonDto) { reason }: ReasonDto,
    @AdminActor() actor: string,
  ): Promise<RunNowBody> {
    return this.admin.runNow(code, actor, reason);
  }

  @Get(':code/preview')
  @ApiOperation({ summary: 'The next slots' })
  @ApiOkResponse({ type: PreviewBody })
  @ApiUnknown(UNKNOWN)
  preview(
    @AdminParam('code', CODE) code: string,
    @AdminQuery(PreviewQuery) { count }: PreviewQuery,
  ): Promise<PreviewBody> {
    return this.admin.preview(code, count);
  }
}
